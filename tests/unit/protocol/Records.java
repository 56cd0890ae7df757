// Apache Kafka's record batches as a witness: one question per line on stdin, one answer per line on stdout.
//   W codec base-offset producer-id epoch sequence transactional record...   build a batch, as hex
//   R hex                                                                    read one, "ok" and its records
// A record is timestamp/key/value/name=content;name=content in hex, "-" for null. Or "!" and the exception.

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
                answer = words[0].equals("W") ? write(words) : read(HexFormat.of().parseHex(words[1]));
            } catch (Throwable error) {
                answer = "!" + error.toString().replace('\n', ' ');
            }
            out.println(answer);
            out.flush();
        }
    }

    static String write(String[] words) {
        long base = Long.parseLong(words[2]);
        Compression codec = Compression.of(CompressionType.forId(Integer.parseInt(words[1]))).build();
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 20), RecordBatch.MAGIC_VALUE_V2,
            codec, TimestampType.CREATE_TIME, base, RecordBatch.NO_TIMESTAMP, Long.parseLong(words[3]),
            Short.parseShort(words[4]), Integer.parseInt(words[5]), Boolean.parseBoolean(words[6]), 5);
        for (int index = 7; index < words.length; index++) {
            String[] parts = words[index].split("/", -1);
            builder.appendWithOffset(base + index - 7, Long.parseLong(parts[0]), bytes(parts[1]), bytes(parts[2]), headers(parts[3]));
        }
        ByteBuffer buffer = builder.build().buffer();
        return HexFormat.of().formatHex(Utils.toArray(buffer));
    }

    static String read(byte[] data) {
        StringJoiner out = new StringJoiner(" ");
        out.add("ok");
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(data)).batches()) {
            batch.ensureValid();
            for (Record record : batch) {
                record.ensureValid();
                StringJoiner headers = new StringJoiner(";");
                for (Header header : record.headers())
                    headers.add(hex(header.key().getBytes(StandardCharsets.UTF_8)) + "=" + hex(header.value()));
                byte[] key = record.hasKey() ? Utils.toArray(record.key()) : null;
                byte[] value = record.hasValue() ? Utils.toArray(record.value()) : null;
                out.add(record.timestamp() + "/" + hex(key) + "/" + hex(value) + "/" + headers);
            }
        }
        return out.toString();
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
