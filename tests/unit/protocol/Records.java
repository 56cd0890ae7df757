// Apache Kafka's reading and writing of whole record batches as a witness: one question per line on stdin, one answer per
// line on stdout, or "!" and the exception.
//   R hex    every field of every batch and record in it
//   W codec append-time base-offset producer-id epoch sequence transactional leader-epoch record...
//            a batch, as hex; append-time is -1 where the client stamps
//   M base-offset timestamp producer-id epoch COMMIT|ABORT coordinator-epoch    the marker of a transaction, as hex
// A record is timestamp/key/value/name=content;name=content in hex, "-" for null.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.StringJoiner;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Utils;

public class Records {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(System.out, false);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                String[] words = line.split(" ");
                answer = switch (words[0]) {
                    case "R" -> read(HexFormat.of().parseHex(words[1]));
                    case "W" -> write(words);
                    default -> marker(words);
                };
            } catch (Throwable error) {
                answer = "!" + error.toString().replace('\n', ' ');
            }
            out.println(answer);
            out.flush();
        }
    }

    static String read(byte[] data) {
        StringJoiner out = new StringJoiner(" ");
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(data)).batches()) {
            batch.ensureValid();
            out.add("batch:" + batch.baseOffset() + "/" + batch.lastOffset() + "/" + batch.partitionLeaderEpoch() + "/"
                + batch.producerId() + "/" + batch.producerEpoch() + "/" + batch.baseSequence() + "/"
                + batch.compressionType().id + "/" + batch.timestampType().id + "/" + batch.isTransactional() + "/"
                + batch.isControlBatch() + "/" + batch.maxTimestamp() + "/" + batch.countOrNull());
            for (Record record : batch) {
                record.ensureValid();
                StringJoiner headers = new StringJoiner(";");
                for (Header header : record.headers())
                    headers.add(hex(header.key().getBytes(StandardCharsets.UTF_8)) + "=" + hex(header.value()));
                byte[] key = record.hasKey() ? Utils.toArray(record.key()) : null;
                byte[] value = record.hasValue() ? Utils.toArray(record.value()) : null;
                out.add(record.offset() + ":" + record.timestamp() + "/" + hex(key) + "/" + hex(value) + "/" + headers);
            }
        }
        return out.toString();
    }

    static String write(String[] words) {
        Compression codec = Compression.of(CompressionType.forId(Integer.parseInt(words[1]))).build();
        long appended = Long.parseLong(words[2]), base = Long.parseLong(words[3]);
        TimestampType type = appended < 0 ? TimestampType.CREATE_TIME : TimestampType.LOG_APPEND_TIME;
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 20), RecordBatch.MAGIC_VALUE_V2,
            codec, type, base, appended, Long.parseLong(words[4]), Short.parseShort(words[5]), Integer.parseInt(words[6]),
            Boolean.parseBoolean(words[7]), Integer.parseInt(words[8]));
        for (int index = 9; index < words.length; index++) {
            String[] parts = words[index].split("/", -1);
            builder.appendWithOffset(base + index - 9, Long.parseLong(parts[0]), bytes(parts[1]), bytes(parts[2]), headers(parts[3]));
        }
        return HexFormat.of().formatHex(Utils.toArray(builder.build().buffer()));
    }

    static String marker(String[] words) {
        EndTransactionMarker marker = new EndTransactionMarker(ControlRecordType.valueOf(words[5]), Integer.parseInt(words[6]));
        MemoryRecords records = MemoryRecords.withEndTransactionMarker(Long.parseLong(words[1]), Long.parseLong(words[2]), 9,
            Long.parseLong(words[3]), Short.parseShort(words[4]), marker);
        return HexFormat.of().formatHex(Utils.toArray(records.buffer()));
    }

    static Header[] headers(String text) {
        if (text.isEmpty())
            return new Header[0];
        String[] parts = text.split(";", -1);
        Header[] headers = new Header[parts.length];
        for (int index = 0; index < parts.length; index++) {
            String[] pair = parts[index].split("=", -1);
            headers[index] = new RecordHeader(new String(bytes(pair[0]), StandardCharsets.UTF_8), bytes(pair[1]));
        }
        return headers;
    }

    static byte[] bytes(String text) {
        return text.equals("-") ? null : HexFormat.of().parseHex(text);
    }

    static String hex(byte[] data) {
        return data == null ? "-" : HexFormat.of().formatHex(data);
    }
}
