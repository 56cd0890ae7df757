import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

/** Transactions of one to four steps, each a send or a poll, some aborted on purpose. */
class Mixer extends Worker {
    private static final double ABORTS = 0.15;

    Mixer(JsonNode task) throws IOException {
        super(task);
    }

    @Override
    void run() throws Lost {
        List<TopicPartition> places = new ArrayList<>();
        for (int number = 0; number < task.get("partitions").asInt(); number++) {
            places.add(new TopicPartition(text("topic"), number));
        }
        KafkaConsumer<String, String> consumer = consumer();
        ledger.note("assign", keys(places));
        consumer.assign(places);
        consumer.seekToBeginning(places);
        KafkaProducer<String, String> producer = producer();
        while (goesOn()) {
            transaction(producer, consumer);
            rest();
        }
    }

    private void transaction(KafkaProducer<String, String> producer, KafkaConsumer<String, String> consumer) throws Lost {
        Ledger.Op op = ledger.begin(true);
        try {
            producer.beginTransaction();
            int steps = 1 + chance.nextInt(4);
            for (int step = 0; step < steps; step++) {
                if (chance.nextDouble() < 0.6) {
                    int partition = chance.nextInt(task.get("partitions").asInt());
                    String value = text("process") + ":" + op.number + "." + step;
                    send(producer, op, text("topic"), partition, value);
                } else {
                    poll(op, consumer, 20, new ArrayList<>());
                }
                op.write();
            }
            if (chance.nextDouble() < ABORTS) {
                abort(producer, op, "on purpose");
                return;
            }
        } catch (KafkaException error) {
            abort(producer, op, error.toString());
            return;
        }
        commit(producer, op);
    }
}
