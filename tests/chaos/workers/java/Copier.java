import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

/** Exactly-once copying: what it reads goes to the target and the positions with it, in one transaction. */
class Copier extends Worker {
    Copier(JsonNode task) throws IOException {
        super(task);
    }

    @Override
    void run() throws Lost {
        KafkaProducer<String, String> producer = producer();
        KafkaConsumer<String, String> consumer = joined();
        while (goesOn()) {
            List<ConsumerRecord<String, String>> records = new ArrayList<>();
            Ledger.Op op = ledger.begin(true);
            poll(op, consumer, 100, records);
            if (records.isEmpty()) {
                op.decide();
                op.end("ok", "");
            } else {
                copy(producer, consumer, op, records);
            }
        }
        consumer.close();
    }

    private void copy(
            KafkaProducer<String, String> producer,
            KafkaConsumer<String, String> consumer,
            Ledger.Op op,
            List<ConsumerRecord<String, String>> records) throws Lost {
        Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
        Map<TopicPartition, Long> first = new HashMap<>();
        for (ConsumerRecord<String, String> record : records) {
            TopicPartition place = new TopicPartition(record.topic(), record.partition());
            positions.put(place, new OffsetAndMetadata(record.offset() + 1));
            first.putIfAbsent(place, record.offset());
        }
        positions.forEach((place, at) -> op.add("commit", text("group"), key(place.topic(), place.partition()), at.offset()));
        op.write();
        try {
            producer.beginTransaction();
            for (ConsumerRecord<String, String> record : records) {
                String value = record.value() + "@" + text("process") + "." + op.number;
                send(producer, op, text("target"), record.partition(), value);
            }
            op.write();
            producer.sendOffsetsToTransaction(positions, consumer.groupMetadata());
        } catch (KafkaException error) {
            abort(producer, op, error.toString());
            first.forEach((place, offset) -> {
                if (consumer.assignment().contains(place)) {
                    consumer.seek(place, offset);
                }
            });
            return;
        }
        commit(producer, op);
    }
}
