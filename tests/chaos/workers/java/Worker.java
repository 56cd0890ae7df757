import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** A worker of tests/chaos by the Java clients (transactions of version 2): one life, which ends with standard input. */
abstract class Worker {
    /** The producer is of no use any more. */
    static class Lost extends Exception {
        Lost(String text) {
            super(text);
        }
    }

    private static final int TRANSACTION_MS = 5000;
    private static final int SESSION_MS = 5000;
    private static final long TRIES_NS = 40_000_000_000L;

    final JsonNode task;
    final Ledger ledger;
    final Random chance;
    private volatile boolean stopping = false;

    Worker(JsonNode task) throws IOException {
        this.task = task;
        this.ledger = new Ledger(text("history"), text("process"));
        this.chance = new Random(task.get("seed").asLong());
        Thread end = new Thread(this::awaitEnd);
        end.setDaemon(true);
        end.start();
    }

    public static void main(String[] arguments) throws Exception {
        JsonNode task = new ObjectMapper().readTree(arguments[0]);
        Worker worker = switch (task.get("role").asText()) {
            case "mixer" -> new Mixer(task);
            case "copier" -> new Copier(task);
            case "member" -> new Member(task);
            default -> throw new IllegalArgumentException("no worker is a " + task.get("role"));
        };
        try {
            worker.run();
        } catch (Lost lost) {
            if (!worker.text("group").isEmpty()) {
                worker.ledger.note("disown", worker.text("group"), List.of());
            }
            worker.ledger.say("lost: " + lost.getMessage());
        }
        Runtime.getRuntime().halt(0);
    }

    abstract void run() throws Lost;

    private void awaitEnd() {
        try {
            while (System.in.read() >= 0) {}
        } catch (IOException gone) {
            // it is the end as well
        }
        stopping = true;
    }

    boolean goesOn() {
        return !stopping;
    }

    String text(String name) {
        return task.get(name).asText();
    }

    static String key(String topic, int partition) {
        return topic + "/" + partition;
    }

    static List<String> keys(Collection<TopicPartition> places) {
        List<String> found = new ArrayList<>();
        places.forEach(place -> found.add(key(place.topic(), place.partition())));
        return found;
    }

    private Map<String, Object> base() {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", text("servers"));
        settings.put("reconnect.backoff.ms", 20);
        settings.put("reconnect.backoff.max.ms", 200);
        settings.put("retry.backoff.ms", 20);
        settings.put("retry.backoff.max.ms", 200);
        settings.put("request.timeout.ms", 3000);
        return settings;
    }

    KafkaProducer<String, String> producer() throws Lost {
        Map<String, Object> settings = base();
        settings.put("transactional.id", text("transactional_id"));
        settings.put("transaction.timeout.ms", TRANSACTION_MS);
        settings.put("delivery.timeout.ms", TRANSACTION_MS - 1000);
        settings.put("linger.ms", 0);
        settings.put("max.block.ms", 10_000);
        KafkaProducer<String, String> made = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        while (goesOn()) {
            try {
                made.initTransactions();
                return made;
            } catch (TimeoutException | InterruptException again) {
                // the node is not back yet
            } catch (KafkaException error) {
                throw new Lost(error.toString());
            }
        }
        throw new Lost("stopped before it was born");
    }

    KafkaConsumer<String, String> consumer() {
        Map<String, Object> settings = base();
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.poll.records", 50);
        settings.put("fetch.max.wait.ms", 100);
        if (!text("group").isEmpty()) {
            settings.put("group.id", text("group"));
            if (text("assignor").equals("consumer")) {
                settings.put("group.protocol", "consumer");
            } else {
                String name = text("assignor").equals("range") ? "RangeAssignor" : "CooperativeStickyAssignor";
                settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + name);
                settings.put("session.timeout.ms", SESSION_MS);
                settings.put("heartbeat.interval.ms", 500);
            }
        }
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    KafkaConsumer<String, String> joined() {
        ledger.note("subscribe", text("group"));
        KafkaConsumer<String, String> consumer = consumer();
        consumer.subscribe(List.of(text("topic")), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> places) {
                if (!places.isEmpty()) {
                    ledger.note("own", text("group"), keys(places), text("instance"));
                }
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> places) {
                if (!places.isEmpty()) {
                    ledger.note("disown", text("group"), keys(places));
                }
            }
        });
        return consumer;
    }

    static void poll(Ledger.Op op, KafkaConsumer<String, String> consumer, int waitMs, List<ConsumerRecord<String, String>> into) {
        for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(waitMs))) {
            op.add("poll", key(record.topic(), record.partition()), record.value(), record.offset());
            into.add(record);
        }
    }

    void send(KafkaProducer<String, String> producer, Ledger.Op op, String topic, int partition, String value) {
        List<Object> send = op.add("send", key(topic, partition), value, null);
        producer.send(new ProducerRecord<>(topic, partition, null, value), (told, error) -> {
            if (error == null && told.hasOffset()) {
                op.offset(send, told.offset());
            }
        });
    }

    /** Asks for the commit until it is known how it ended. */
    boolean commit(KafkaProducer<String, String> producer, Ledger.Op op) throws Lost {
        op.decide();
        long deadline = System.nanoTime() + TRIES_NS;
        while (true) {
            try {
                producer.commitTransaction();
                op.end("ok", "");
                return true;
            } catch (TimeoutException | InterruptException again) {
                if (System.nanoTime() > deadline) {
                    op.end("unknown", again.toString());
                    throw new Lost(again.toString());
                }
            } catch (KafkaException error) {
                op.end("unknown", error.toString());
                // It may be committed all the same: only a new producer finds out by fencing.
                throw new Lost(error.toString());
            }
        }
    }

    /** Nobody has asked for a commit: it failed, whatever the answers. */
    void abort(KafkaProducer<String, String> producer, Ledger.Op op, String note) throws Lost {
        op.decide();
        try {
            producer.abortTransaction();
            op.end("fail", note);
        } catch (KafkaException error) {
            op.end("fail", note + ", abort: " + error);
            throw new Lost(error.toString());
        }
    }

    void rest() {
        try {
            Thread.sleep((long) (task.get("pause_s").asDouble() * 1000));
        } catch (InterruptedException gone) {
            Thread.currentThread().interrupt();
        }
    }
}
