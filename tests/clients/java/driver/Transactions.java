import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Transactional producers, and what an administrator can see and do of transactions. */
class Transactions {
    private final String bootstrap;
    private final Admin admin;
    private final Map<Integer, KafkaConsumer<byte[], byte[]>> consumers;
    private final Map<Integer, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final Map<Integer, ConsumerGroupMetadata> remembered = new HashMap<>();
    private int producersMade = 0;

    private interface ProducerOperation {
        Object run(KafkaProducer<byte[], byte[]> producer, JsonNode in) throws Exception;
    }

    Transactions(String bootstrap, Admin admin, Map<Integer, KafkaConsumer<byte[], byte[]>> consumers) {
        this.bootstrap = bootstrap;
        this.admin = admin;
        this.consumers = consumers;
    }

    void addTo(Map<String, Driver.Operation> operations) {
        producers(operations);
        administration(operations);
    }

    private void producers(Map<String, Driver.Operation> operations) {
        operations.put("producer", in -> {
            Map<String, Object> config = new HashMap<>(Driver.stringMap(in.get("config")));
            config.put("bootstrap.servers", bootstrap);
            ByteArraySerializer bytes = new ByteArraySerializer();
            producers.put(++producersMade, new KafkaProducer<>(config, bytes, bytes));
            return producersMade;
        });
        onProducer(operations, "init_transactions", (producer, in) -> {
            producer.initTransactions();
            return null;
        });
        onProducer(operations, "begin", (producer, in) -> {
            producer.beginTransaction();
            return null;
        });
        onProducer(operations, "send", (producer, in) -> {
            TopicPartition to = Driver.partition(in.get("partition"));
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode value : in.get("values")) {
                sent.add(producer.send(new ProducerRecord<>(to.topic(), to.partition(), null, Driver.bytes(value))));
            }
            producer.flush();
            List<Long> offsets = new ArrayList<>();
            for (Future<RecordMetadata> one : sent) {
                offsets.add(one.get().offset());
            }
            return offsets;
        });
        onProducer(operations, "send_offsets", (producer, in) -> {
            int consumer = in.get("consumer").asInt();
            ConsumerGroupMetadata member =
                in.get("as_remembered").asBoolean() ? remembered.get(consumer) : consumers.get(consumer).groupMetadata();
            producer.sendOffsetsToTransaction(Driver.offsets(in.get("offsets")), member);
            return null;
        });
        operations.put("remember_member", in -> {
            int consumer = in.get("consumer").asInt();
            remembered.put(consumer, consumers.get(consumer).groupMetadata());
            return null;
        });
        onProducer(operations, "commit_transaction", (producer, in) -> {
            producer.commitTransaction();
            return null;
        });
        onProducer(operations, "abort", (producer, in) -> {
            producer.abortTransaction();
            return null;
        });
        onProducer(operations, "close_producer", (producer, in) -> {
            producers.remove(in.get("producer").asInt());
            producer.close();
            return null;
        });
    }

    private void onProducer(Map<String, Driver.Operation> operations, String name, ProducerOperation operation) {
        operations.put(name, in -> operation.run(producers.get(in.get("producer").asInt()), in));
    }

    private void administration(Map<String, Driver.Operation> operations) {
        operations.put("list_transactions", in -> {
            ListTransactionsOptions options = new ListTransactionsOptions();
            List<TransactionState> states = new ArrayList<>();
            Driver.strings(in.get("states")).forEach(name -> states.add(TransactionState.parse(name)));
            options.filterStates(states);
            if (!in.get("pattern").isNull()) {
                options.filterOnTransactionalIdPattern(Driver.text(in, "pattern"));
            }
            options.filterOnDuration(in.get("duration_ms").asLong());
            Map<String, Object> found = new HashMap<>();
            for (TransactionListing one : admin.listTransactions(options).all().get()) {
                found.put(one.transactionalId(), List.of(one.producerId(), one.state().toString()));
            }
            return found;
        });
        operations.put("describe_transaction", in -> {
            String id = Driver.text(in, "id");
            TransactionDescription found = admin.describeTransactions(List.of(id)).all().get().get(id);
            return Map.of(
                "state", found.state().toString(), "producer_id", found.producerId(), "epoch", found.producerEpoch(),
                "timeout_ms", found.transactionTimeoutMs(), "started", found.transactionStartTimeMs().isPresent(),
                "partitions", Driver.pairs(found.topicPartitions()), "coordinator", found.coordinatorId());
        });
        operations.put("describe_producers", in -> {
            TopicPartition partition = Driver.partition(in.get("partition"));
            List<Object> found = new ArrayList<>();
            Collection<ProducerState> producers =
                admin.describeProducers(Set.of(partition)).all().get().get(partition).activeProducers();
            for (ProducerState one : producers) {
                found.add(Map.of(
                    "producer_id", one.producerId(), "epoch", one.producerEpoch(), "last_sequence", one.lastSequence(),
                    "start_offset", one.currentTransactionStartOffset().orElse(-1),
                    "coordinator_epoch", one.coordinatorEpoch().orElse(-1)));
            }
            return found;
        });
        operations.put("abort_transaction", in -> admin.abortTransaction(new AbortTransactionSpec(
            Driver.partition(in.get("partition")), in.get("producer_id").asLong(), (short) in.get("epoch").asInt(),
            in.get("coordinator_epoch").asInt())).all().get());
        operations.put("fence_producers", in -> admin.fenceProducers(Driver.strings(in.get("ids"))).all().get());
        operations.put("features", in -> {
            Map<String, Object> found = new HashMap<>();
            admin.describeFeatures().featureMetadata().get().finalizedFeatures().forEach(
                (name, range) -> found.put(name, range.maxVersionLevel()));
            return found;
        });
    }
}
