import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The Java clients as a load, in one JVM that stays warm from run to run. A line of JSON in, a line of JSON out:
 * {"op": "produce" | "transactions" | "consume" | "end_to_end", ...} gives figures, or {"failed": ...}. Every operation ends by itself.
 */
public class Load {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int PAYLOADS = 64;
    private static final Duration POLL = Duration.ofMillis(200);

    /** Counts by logarithm with 128 steps per power of two: exact to 0.8 %. For one thread. */
    private static final class Histogram {
        private final long[] counts = new long[64 << 7];
        private long total;
        private long worst;

        void add(long nanos) {
            long value = Math.max(nanos, 0);
            int shift = Math.max(0, 63 - Long.numberOfLeadingZeros(value | 1) - 7);
            counts[(shift << 7) + (int) (value >> shift)]++;
            total++;
            worst = Math.max(worst, value);
        }

        double percentile(double share) {
            long wanted = (long) (share * total);
            long seen = 0;
            for (int index = 0; index < counts.length; index++) {
                seen += counts[index];
                if (seen > wanted) {
                    int shift = Math.max(0, (index >> 7) - 1);
                    return ((long) (index - (shift << 7)) << shift) / 1e6;
                }
            }
            return worst / 1e6;
        }

        void into(Map<String, Object> out) {
            out.put("p50_ms", percentile(0.5));
            out.put("p99_ms", percentile(0.99));
            out.put("p999_ms", percentile(0.999));
            out.put("max_ms", worst / 1e6);
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<String, Object> answer;
            try {
                answer = answer(JSON.readTree(line));
            } catch (Exception thrown) {
                answer = Map.of("failed", thrown.toString());
            }
            out.println(JSON.writeValueAsString(answer));
            out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static Map<String, Object> answer(JsonNode in) throws Exception {
        return switch (in.get("op").asText()) {
            case "produce" -> produce(in);
            case "transactions" -> transactions(in);
            case "consume" -> consume(in);
            case "end_to_end" -> endToEnd(in);
            default -> throw new IllegalArgumentException(in.get("op").asText());
        };
    }

    private static Map<String, Object> settings(JsonNode in, String properties) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", in.get("bootstrap").asText());
        in.get(properties).properties().forEach(entry -> settings.put(entry.getKey(), entry.getValue().asText()));
        return settings;
    }

    private static KafkaProducer<byte[], byte[]> producer(JsonNode in) {
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(settings(in, "properties"), new ByteArraySerializer(), new ByteArraySerializer());
        producer.partitionsFor(in.get("topic").asText());
        return producer;
    }

    /** Random letters, or lines of a log in which only the numbers differ: what compression meets in practice. */
    private static byte[][] payloads(int size, boolean compressible) {
        Random random = new Random(7);
        byte[][] payloads = new byte[PAYLOADS][];
        for (int index = 0; index < PAYLOADS; index++) {
            StringBuilder text = new StringBuilder();
            while (text.length() < size) {
                if (compressible) {
                    text.append("{\"user\": ").append(random.nextInt(1_000_000)).append(", \"event\": \"page-view\", \"path\": \"/shop/")
                        .append(random.nextInt(1000)).append("\", \"status\": 200, \"took_ms\": ").append(random.nextInt(500)).append("}\n");
                } else {
                    text.append((char) ('A' + random.nextInt(26)));
                }
            }
            payloads[index] = text.substring(0, size).getBytes(StandardCharsets.US_ASCII);
        }
        return payloads;
    }

    private static Map<String, Object> produce(JsonNode in) throws Exception {
        String topic = in.get("topic").asText();
        byte[][] payloads = payloads(in.get("size").asInt(), in.get("compressible").asBoolean());
        long recordsMax = in.get("records_max").asLong();
        Histogram latencies = new Histogram();
        AtomicReference<Exception> failure = new AtomicReference<>();
        long sent = 0;
        long took;
        try (KafkaProducer<byte[], byte[]> producer = producer(in)) {
            long started = System.nanoTime();
            long stop = started + (long) (in.get("seconds_max").asDouble() * 1e9);
            while (sent < recordsMax && failure.get() == null) {
                long now = System.nanoTime();
                if (now >= stop) {
                    break;
                }
                ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, payloads[(int) (sent % PAYLOADS)]);
                producer.send(record, (metadata, thrown) -> {
                    if (thrown != null) {
                        failure.set(thrown);
                    } else {
                        latencies.add(System.nanoTime() - now);
                    }
                });
                sent++;
            }
            producer.flush();
            took = System.nanoTime() - started;
        }
        if (failure.get() != null) {
            throw failure.get();
        }
        Map<String, Object> out = new HashMap<>(Map.of("records", sent, "seconds", took / 1e9));
        latencies.into(out);
        return out;
    }

    /** Transactions one after the other, ended by their number of records or by the clock. */
    private static Map<String, Object> transactions(JsonNode in) throws Exception {
        String topic = in.get("topic").asText();
        byte[][] payloads = payloads(in.get("size").asInt(), false);
        long recordsMax = in.get("records_max").asLong();
        long recordsEach = in.get("records_each").asLong();
        long everyNanos = in.get("commit_every_ms").asLong() * 1_000_000L;
        Histogram commits = new Histogram();
        AtomicReference<Exception> failure = new AtomicReference<>();
        long sent = 0;
        long took;
        try (KafkaProducer<byte[], byte[]> producer = producer(in)) {
            producer.initTransactions();
            long started = System.nanoTime();
            long stop = started + (long) (in.get("seconds_max").asDouble() * 1e9);
            while (sent < recordsMax && System.nanoTime() < stop) {
                producer.beginTransaction();
                long end = System.nanoTime() + everyNanos;
                for (long each = 0; recordsEach > 0 ? each < recordsEach : System.nanoTime() < end; each++) {
                    producer.send(new ProducerRecord<>(topic, payloads[(int) (sent % PAYLOADS)]), (metadata, thrown) -> {
                        if (thrown != null) {
                            failure.set(thrown);
                        }
                    });
                    sent++;
                }
                producer.flush();
                if (failure.get() != null) {
                    throw failure.get();
                }
                long begun = System.nanoTime();
                producer.commitTransaction();
                commits.add(System.nanoTime() - begun);
            }
            took = System.nanoTime() - started;
        }
        Map<String, Object> out = new HashMap<>(Map.of("records", sent, "seconds", took / 1e9, "commits", commits.total));
        commits.into(out);
        return out;
    }

    private static KafkaConsumer<byte[], byte[]> consumer(JsonNode in) {
        Map<String, Object> settings = settings(in, "consumer_properties");
        settings.put("enable.auto.commit", "false");
        KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        List<TopicPartition> partitions = new ArrayList<>();
        for (PartitionInfo info : consumer.partitionsFor(in.get("topic").asText())) {
            partitions.add(new TopicPartition(info.topic(), info.partition()));
        }
        consumer.assign(partitions);
        return consumer;
    }

    private static Map<String, Object> consume(JsonNode in) throws Exception {
        int count = in.get("consumers").asInt();
        long wanted = in.get("records_max").asLong();
        double secondsMax = in.get("seconds_max").asDouble();
        CountDownLatch ready = new CountDownLatch(count);
        CountDownLatch go = new CountDownLatch(1);
        ExecutorService threads = Executors.newFixedThreadPool(count);
        List<Future<long[]>> parts = new ArrayList<>();
        for (int index = 0; index < count; index++) {
            Callable<long[]> part = () -> {
                try (KafkaConsumer<byte[], byte[]> consumer = consumer(in)) {
                    consumer.seekToBeginning(consumer.assignment());
                    consumer.assignment().forEach(consumer::position);
                    ready.countDown();
                    go.await();
                    long stop = System.nanoTime() + (long) (secondsMax * 1e9);
                    long records = 0;
                    long bytes = 0;
                    while (records < wanted && System.nanoTime() < stop) {
                        ConsumerRecords<byte[], byte[]> batch = consumer.poll(POLL);
                        records += batch.count();
                        for (ConsumerRecord<byte[], byte[]> record : batch) {
                            bytes += record.serializedValueSize();
                        }
                    }
                    return new long[] {records, bytes};
                }
            };
            parts.add(threads.submit(part));
        }
        try {
            if (!ready.await(30, TimeUnit.SECONDS)) {
                throw new TimeoutException("the consumers did not find their partitions");
            }
            long started = System.nanoTime();
            go.countDown();
            long records = 0;
            long bytes = 0;
            for (Future<long[]> part : parts) {
                long[] found = part.get((long) secondsMax + 30, TimeUnit.SECONDS);
                records += found[0];
                bytes += found[1];
            }
            double seconds = (System.nanoTime() - started) / 1e9;
            return Map.of("records", records, "bytes", bytes, "seconds", seconds);
        } finally {
            threads.shutdownNow();
        }
    }

    /** Records at a steady rate, a handful each millisecond, with the time of the send in each; read back in this process. */
    private static Map<String, Object> endToEnd(JsonNode in) throws Exception {
        String topic = in.get("topic").asText();
        int rate = in.get("rate").asInt();
        long total = (long) (in.get("seconds_max").asDouble() * rate);
        int size = in.get("size").asInt();
        Histogram latencies = new Histogram();
        CountDownLatch ready = new CountDownLatch(1);
        ExecutorService thread = Executors.newSingleThreadExecutor();
        Future<Long> reader = thread.submit(() -> {
            try (KafkaConsumer<byte[], byte[]> consumer = consumer(in)) {
                consumer.seekToEnd(consumer.assignment());
                consumer.assignment().forEach(consumer::position);
                ready.countDown();
                long seen = 0;
                long silentSince = System.nanoTime();
                while (seen < total && System.nanoTime() - silentSince < 15_000_000_000L) {
                    ConsumerRecords<byte[], byte[]> batch = consumer.poll(POLL);
                    long now = System.nanoTime();
                    for (ConsumerRecord<byte[], byte[]> record : batch) {
                        latencies.add(now - ByteBuffer.wrap(record.value()).getLong());
                        silentSince = now;
                        seen++;
                    }
                }
                return seen;
            }
        });
        try (KafkaProducer<byte[], byte[]> producer = producer(in)) {
            if (!ready.await(30, TimeUnit.SECONDS)) {
                throw new TimeoutException("the consumer did not find its partition");
            }
            long started = System.nanoTime();
            long sent = 0;
            for (long tick = 0; sent < total; tick++) {
                long due = started + tick * 1_000_000L;
                for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) {
                    LockSupport.parkNanos(left);
                }
                for (long until = Math.min(total, (tick + 1) * rate / 1000); sent < until; sent++) {
                    byte[] value = new byte[size];
                    ByteBuffer.wrap(value).putLong(System.nanoTime());
                    producer.send(new ProducerRecord<>(topic, value));
                }
            }
            producer.flush();
            double seconds = (System.nanoTime() - started) / 1e9;
            long seen = reader.get(60, TimeUnit.SECONDS);
            if (seen < total) {
                throw new IllegalStateException("only " + seen + " of " + total + " records came back");
            }
            Map<String, Object> out = new HashMap<>(Map.of("records", sent, "seconds", seconds));
            latencies.into(out);
            return out;
        } finally {
            thread.shutdownNow();
        }
    }
}
