import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Exit;

/**
 * The Java clients and tools in one JVM that a test steers: a line of JSON in, a line of JSON out. {"op": ..., ...} gives
 * {"ok": ...}, {"refused": code, "text": ...} for an error of the broker, or {"failed": ...} for anything else. Bytes are
 * base64, partitions are [topic, number].
 */
public class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final String bootstrap;
    private final Admin admin;
    private final Map<Integer, KafkaConsumer<byte[], byte[]>> consumers = new HashMap<>();
    private int consumersMade = 0;

    interface Operation {
        Object run(JsonNode in) throws Exception;
    }

    private final Map<String, Operation> operations = new HashMap<>();

    private Driver(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        topics();
        configs();
        cluster();
        groups();
        records();
        consumers();
        new Transactions(bootstrap, admin, consumers).addTo(operations);
        new NewGroups(admin, consumers).addTo(operations);
        operations.put("tool", in -> tool(in.get("main").asText(), strings(in.get("arguments")), in.get("stdin").asText()));
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        // A thread that outlives its tool must not speak between our lines.
        System.setOut(System.err);
        Driver driver = new Driver(arguments[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JSON.writeValueAsString(driver.answer(JSON.readTree(line))));
            out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private Map<String, Object> answer(JsonNode in) {
        Map<String, Object> out = new HashMap<>();
        try {
            out.put("ok", operations.get(in.get("op").asText()).run(in));
        } catch (Throwable thrown) {
            Throwable cause = thrown instanceof ExecutionException ? thrown.getCause() : thrown;
            // A client that has failed for good wraps the broker's answer each time it is asked again.
            while (Errors.forException(cause) == Errors.UNKNOWN_SERVER_ERROR && cause.getCause() instanceof ApiException) {
                cause = cause.getCause();
            }
            Errors error = Errors.forException(cause);
            if (error != Errors.UNKNOWN_SERVER_ERROR) {
                out.put("refused", error.code());
                out.put("text", String.valueOf(cause.getMessage()));
            } else {
                ByteArrayOutputStream trace = new ByteArrayOutputStream();
                cause.printStackTrace(new PrintStream(trace, true, StandardCharsets.UTF_8));
                out.put("failed", trace.toString(StandardCharsets.UTF_8));
            }
        }
        return out;
    }

    private void topics() {
        operations.put("create_topic", in -> {
            NewTopic topic = new NewTopic(text(in, "topic"), Optional.of(in.get("partitions").asInt()), Optional.empty());
            return admin.createTopics(List.of(topic.configs(stringMap(in.get("config"))))).all().get();
        });
        operations.put("topics", in -> admin.listTopics().names().get());
        operations.put("partition_count", in ->
            admin.describeTopics(List.of(text(in, "topic"))).allTopicNames().get().get(text(in, "topic")).partitions().size());
        operations.put("create_partitions", in ->
            admin.createPartitions(Map.of(text(in, "topic"), NewPartitions.increaseTo(in.get("total").asInt()))).all().get());
        operations.put("delete_topic", in -> admin.deleteTopics(List.of(text(in, "topic"))).all().get());
        operations.put("delete_records", in -> {
            TopicPartition partition = partition(in.get("partition"));
            RecordsToDelete before = RecordsToDelete.beforeOffset(in.get("before_offset").asLong());
            return admin.deleteRecords(Map.of(partition, before)).lowWatermarks().get(partition).get().lowWatermark();
        });
    }

    private void configs() {
        operations.put("config", in -> {
            ConfigResource resource = resource(in);
            Map<String, String> values = new HashMap<>();
            for (ConfigEntry entry : admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
                values.put(entry.name(), entry.value());
            }
            return values;
        });
        operations.put("alter_config", in -> {
            Collection<AlterConfigOp> changes = new ArrayList<>();
            in.get("set").properties().forEach(entry -> changes.add(
                new AlterConfigOp(new ConfigEntry(entry.getKey(), entry.getValue().asText()), AlterConfigOp.OpType.SET)));
            for (String name : strings(in.get("unset"))) {
                changes.add(new AlterConfigOp(new ConfigEntry(name, ""), AlterConfigOp.OpType.DELETE));
            }
            return admin.incrementalAlterConfigs(Map.of(resource(in), changes)).all().get();
        });
    }

    private void cluster() {
        operations.put("cluster", in -> {
            DescribeClusterResult answer = admin.describeCluster();
            List<Integer> brokers = new ArrayList<>();
            answer.nodes().get().forEach(node -> brokers.add(node.id()));
            return List.of(answer.clusterId().get(), brokers);
        });
        operations.put("log_sizes", in -> {
            List<Integer> brokers = new ArrayList<>();
            admin.describeCluster().nodes().get().forEach(node -> brokers.add(node.id()));
            List<Object> sizes = new ArrayList<>();
            admin.describeLogDirs(brokers).allDescriptions().get().values().forEach(directories ->
                directories.values().forEach(directory -> directory.replicaInfos().forEach((partition, replica) ->
                    sizes.add(List.of(partition.topic(), partition.partition(), replica.size())))));
            return sizes;
        });
    }

    private void groups() {
        operations.put("groups", in -> {
            List<String> names = new ArrayList<>();
            admin.listGroups().all().get().forEach(group -> names.add(group.groupId()));
            return names;
        });
        operations.put("group", in -> {
            ConsumerGroupDescription group =
                admin.describeConsumerGroups(List.of(text(in, "group"))).all().get().get(text(in, "group"));
            List<Object> members = new ArrayList<>();
            group.members().forEach(member -> members.add(pairs(member.assignment().topicPartitions())));
            return List.of(group.groupState().toString(), group.partitionAssignor(), members);
        });
        operations.put("delete_group", in -> admin.deleteConsumerGroups(List.of(text(in, "group"))).all().get());
        operations.put("group_offsets", in -> {
            List<Object> offsets = new ArrayList<>();
            admin.listConsumerGroupOffsets(text(in, "group")).partitionsToOffsetAndMetadata().get().forEach(
                (partition, committed) -> offsets.add(List.of(partition.topic(), partition.partition(), committed.offset())));
            return offsets;
        });
        operations.put("alter_group_offsets", in ->
            admin.alterConsumerGroupOffsets(text(in, "group"), offsets(in.get("offsets"))).all().get());
        operations.put("remove_static_member", in -> {
            MemberToRemove member = new MemberToRemove(text(in, "instance"));
            RemoveMembersFromConsumerGroupOptions members = new RemoveMembersFromConsumerGroupOptions(Set.of(member));
            return admin.removeMembersFromConsumerGroup(text(in, "group"), members).all().get();
        });
        operations.put("delete_group_offsets", in ->
            admin.deleteConsumerGroupOffsets(text(in, "group"), Set.of(partition(in.get("partition")))).all().get());
    }

    private void records() {
        operations.put("produce", in -> {
            Map<String, Object> config = new HashMap<>(stringMap(in.get("config")));
            config.put("bootstrap.servers", bootstrap);
            ByteArraySerializer bytes = new ByteArraySerializer();
            List<Long> offsets = new ArrayList<>();
            try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config, bytes, bytes)) {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (JsonNode record : in.get("records")) {
                    sent.add(producer.send(record(text(in, "topic"), record)));
                }
                producer.flush();
                for (Future<RecordMetadata> one : sent) {
                    offsets.add(one.get().offset());
                }
            }
            return offsets;
        });
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, JsonNode in) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : in.get("headers")) {
            headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
        }
        Long timestamp = in.get("timestamp_ms").isNull() ? null : in.get("timestamp_ms").asLong();
        return new ProducerRecord<>(
            topic, in.get("partition").asInt(), timestamp, bytes(in.get("key")), bytes(in.get("value")), headers);
    }

    private void consumers() {
        operations.put("consumer", in -> {
            Map<String, Object> config = new HashMap<>(stringMap(in.get("config")));
            config.put("bootstrap.servers", bootstrap);
            ByteArrayDeserializer bytes = new ByteArrayDeserializer();
            consumers.put(++consumersMade, new KafkaConsumer<>(config, bytes, bytes));
            return consumersMade;
        });
        onConsumer("assign", (consumer, in) -> {
            consumer.assign(partitions(in.get("partitions")));
            return null;
        });
        onConsumer("subscribe", (consumer, in) -> {
            consumer.subscribe(strings(in.get("topics")));
            return null;
        });
        onConsumer("seek", (consumer, in) -> {
            consumer.seek(partition(in.get("partition")), in.get("offset").asLong());
            return null;
        });
        onConsumer("seek_to_beginning", (consumer, in) -> {
            consumer.seekToBeginning(List.of(partition(in.get("partition"))));
            return null;
        });
        onConsumer("offset_for_time", (consumer, in) -> {
            TopicPartition partition = partition(in.get("partition"));
            OffsetAndTimestamp found =
                consumer.offsetsForTimes(Map.of(partition, in.get("timestamp_ms").asLong())).get(partition);
            return found == null ? null : found.offset();
        });
        onConsumer("bounds", (consumer, in) -> {
            TopicPartition partition = partition(in.get("partition"));
            return List.of(
                consumer.beginningOffsets(List.of(partition)).get(partition),
                consumer.endOffsets(List.of(partition)).get(partition));
        });
        onConsumer("poll", (consumer, in) -> {
            List<Object> records = new ArrayList<>();
            consumer.poll(Duration.ofMillis(100)).forEach(record -> records.add(plain(record)));
            return records;
        });
        onConsumer("assignment", (consumer, in) -> pairs(consumer.assignment()));
        onConsumer("commit", (consumer, in) -> {
            consumer.commitSync(offsets(in.get("offsets")));
            return null;
        });
        onConsumer("committed", (consumer, in) -> {
            TopicPartition partition = partition(in.get("partition"));
            OffsetAndMetadata committed = consumer.committed(Set.of(partition)).get(partition);
            return committed == null ? null : committed.offset();
        });
        onConsumer("close", (consumer, in) -> {
            consumers.remove(in.get("consumer").asInt());
            consumer.close();
            return null;
        });
    }

    private interface ConsumerOperation {
        Object run(KafkaConsumer<byte[], byte[]> consumer, JsonNode in) throws Exception;
    }

    private void onConsumer(String name, ConsumerOperation operation) {
        operations.put(name, in -> operation.run(consumers.get(in.get("consumer").asInt()), in));
    }

    private static Map<String, Object> plain(ConsumerRecord<byte[], byte[]> record) {
        List<Object> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            List<String> pair = new ArrayList<>();
            pair.add(header.key());
            pair.add(base64(header.value()));
            headers.add(pair);
        }
        Map<String, Object> out = new HashMap<>();
        out.put("value", base64(record.value()));
        out.put("key", base64(record.key()));
        out.put("headers", headers);
        out.put("partition", record.partition());
        out.put("timestamp_ms", record.timestamp());
        out.put("offset", record.offset());
        out.put("append_time", record.timestampType() == TimestampType.LOG_APPEND_TIME);
        return out;
    }

    /** A tool ends by leaving the JVM; here that ends only the call. Some catch what they threw and leave again. */
    private static class Left extends RuntimeException {
        Left() {
            super("the tool has left", null, false, false);
        }
    }

    private static Object tool(String main, List<String> arguments, String stdin) throws Exception {
        PrintStream out = System.out;
        PrintStream err = System.err;
        InputStream in = System.in;
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        PrintStream capture = new PrintStream(said, true, StandardCharsets.UTF_8);
        List<Object> firstLeave = new ArrayList<>();
        Exit.Procedure leave = (status, message) -> {
            if (firstLeave.isEmpty()) {
                firstLeave.addAll(List.of(status, said.toString(StandardCharsets.UTF_8)));
            }
            throw new Left();
        };
        Exit.setExitProcedure(leave);
        Exit.setHaltProcedure(leave);
        List<Runnable> hooks = new ArrayList<>();
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        try {
            System.setOut(capture);
            System.setErr(capture);
            System.setIn(new ByteArrayInputStream(stdin.getBytes(StandardCharsets.UTF_8)));
            Class.forName(main).getMethod("main", String[].class).invoke(null, (Object) arguments.toArray(new String[0]));
        } catch (InvocationTargetException thrown) {
            if (firstLeave.isEmpty()) {
                throw thrown;
            }
        } finally {
            // The console producer sends what it still holds only here.
            hooks.forEach(Runnable::run);
            System.setOut(out);
            System.setErr(err);
            System.setIn(in);
        }
        return firstLeave.isEmpty() ? List.of(0, said.toString(StandardCharsets.UTF_8)) : firstLeave;
    }

    static String text(JsonNode in, String name) {
        return in.get(name).asText();
    }

    static byte[] bytes(JsonNode in) {
        return in.isNull() ? null : Base64.getDecoder().decode(in.asText());
    }

    static String base64(byte[] in) {
        return in == null ? null : Base64.getEncoder().encodeToString(in);
    }

    static List<String> strings(JsonNode in) {
        List<String> out = new ArrayList<>();
        in.forEach(one -> out.add(one.asText()));
        return out;
    }

    static Map<String, String> stringMap(JsonNode in) {
        Map<String, String> out = new HashMap<>();
        in.properties().forEach(entry -> out.put(entry.getKey(), entry.getValue().asText()));
        return out;
    }

    private static ConfigResource resource(JsonNode in) {
        return new ConfigResource(ConfigResource.Type.valueOf(text(in, "type")), text(in, "name"));
    }

    static TopicPartition partition(JsonNode in) {
        return new TopicPartition(in.get(0).asText(), in.get(1).asInt());
    }

    static List<TopicPartition> partitions(JsonNode in) {
        List<TopicPartition> out = new ArrayList<>();
        in.forEach(one -> out.add(partition(one)));
        return out;
    }

    static List<Object> pairs(Collection<TopicPartition> in) {
        List<Object> out = new ArrayList<>();
        in.forEach(one -> out.add(List.of(one.topic(), one.partition())));
        return out;
    }

    static Map<TopicPartition, OffsetAndMetadata> offsets(JsonNode in) {
        Map<TopicPartition, OffsetAndMetadata> out = new HashMap<>();
        in.forEach(one -> out.put(partition(one), new OffsetAndMetadata(one.get(2).asLong())));
        return out;
    }
}
