import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Consumers of one group, a thread each, in one JVM. "start NUMBER" starts one, "stop" closes them all. For every record a
 * line: its partition, the number of the consumer, and when it came, in nanoseconds of this JVM's clock.
 * Arguments: bootstrap servers, topic, group, then settings as name=value.
 */
public class GapConsumers {
    private static volatile boolean stopped;

    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", args[0]);
        settings.put("group.id", args[2]);
        settings.put("auto.offset.reset", "latest");
        settings.put("enable.auto.commit", "false");
        settings.put("key.deserializer", ByteArrayDeserializer.class);
        settings.put("value.deserializer", ByteArrayDeserializer.class);
        for (int index = 3; index < args.length; index++) {
            String[] pair = args[index].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        List<Thread> threads = new ArrayList<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null && !line.equals("stop"); line = in.readLine()) {
            String number = line.substring("start ".length());
            Thread thread = new Thread(() -> consume(settings, args[1], number));
            thread.start();
            threads.add(thread);
        }
        stopped = true;
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private static void consume(Map<String, Object> settings, String topic, String number) {
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(topic));
            while (!stopped) {
                StringBuilder lines = new StringBuilder();
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(20))) {
                    lines.append(record.partition()).append(' ').append(number).append(' ').append(System.nanoTime()).append('\n');
                }
                if (lines.length() > 0) {
                    System.out.print(lines);
                    System.out.flush();
                }
            }
        }
    }
}
