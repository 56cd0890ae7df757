import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

/** A member of a group that commits what it has polled. */
class Member extends Worker {
    Member(JsonNode task) throws IOException {
        super(task);
    }

    @Override
    void run() {
        KafkaConsumer<String, String> consumer = joined();
        while (goesOn()) {
            List<ConsumerRecord<String, String>> records = new ArrayList<>();
            Ledger.Op op = ledger.begin(false);
            poll(op, consumer, 100, records);
            op.end("ok", "");
            if (!records.isEmpty()) {
                commit(consumer, records);
            }
            rest();
        }
        ledger.note("disown", text("group"), List.of());
        consumer.close();
    }

    private void commit(KafkaConsumer<String, String> consumer, List<ConsumerRecord<String, String>> records) {
        Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
        for (ConsumerRecord<String, String> record : records) {
            positions.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        Ledger.Op op = ledger.begin(false);
        positions.forEach((place, at) -> op.add("commit", text("group"), key(place.topic(), place.partition()), at.offset()));
        op.write();
        try {
            consumer.commitSync(positions);
            op.end("ok", "");
        } catch (KafkaException error) {
            // It may have been done at a first try whose answer was lost.
            op.end("unknown", error.toString());
        }
    }
}
