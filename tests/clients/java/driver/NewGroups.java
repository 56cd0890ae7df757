import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;

/** What the protocol of KIP-848 adds to a group: epochs, target assignments, patterns that the broker resolves. */
class NewGroups {
    private final Admin admin;
    private final Map<Integer, KafkaConsumer<byte[], byte[]>> consumers;

    NewGroups(Admin admin, Map<Integer, KafkaConsumer<byte[], byte[]>> consumers) {
        this.admin = admin;
        this.consumers = consumers;
    }

    void addTo(Map<String, Driver.Operation> operations) {
        operations.put("group_details", in -> {
            String id = Driver.text(in, "group");
            ConsumerGroupDescription group = admin.describeConsumerGroups(List.of(id)).all().get().get(id);
            List<Object> members = new ArrayList<>();
            group.members().forEach(member -> members.add(details(member)));
            Map<String, Object> found = new HashMap<>();
            found.put("type", group.type().toString());
            found.put("state", group.groupState().toString());
            found.put("assignor", group.partitionAssignor());
            found.put("epoch", group.groupEpoch().orElse(null));
            found.put("target_epoch", group.targetAssignmentEpoch().orElse(null));
            found.put("members", members);
            return found;
        });
        operations.put("group_types", in -> {
            Map<String, Object> found = new HashMap<>();
            for (GroupListing one : admin.listGroups().all().get()) {
                found.put(one.groupId(), List.of(one.type().map(Object::toString).orElse(""), one.protocol()));
            }
            return found;
        });
        operations.put("stable_offsets", in -> {
            String id = Driver.text(in, "group");
            ListConsumerGroupOffsetsOptions options = new ListConsumerGroupOffsetsOptions();
            options.requireStable(true);
            List<Object> offsets = new ArrayList<>();
            // A partition that has only a pending offset is not among "all".
            ListConsumerGroupOffsetsSpec named = new ListConsumerGroupOffsetsSpec();
            named.topicPartitions(Driver.partitions(in.get("partitions")));
            admin.listConsumerGroupOffsets(Map.of(id, named), options)
                .partitionsToOffsetAndMetadata(id).get().forEach((partition, committed) ->
                    offsets.add(List.of(partition.topic(), partition.partition(), committed.offset())));
            return offsets;
        });
        operations.put("subscribe_pattern", in -> {
            consumer(in).subscribe(new SubscriptionPattern(Driver.text(in, "pattern")));
            return null;
        });
        operations.put("close_and_stay", in -> {
            KafkaConsumer<byte[], byte[]> consumer = consumers.remove(in.get("consumer").asInt());
            consumer.close(CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.REMAIN_IN_GROUP));
            return null;
        });
    }

    private KafkaConsumer<byte[], byte[]> consumer(JsonNode in) {
        return consumers.get(in.get("consumer").asInt());
    }

    private static Map<String, Object> details(MemberDescription member) {
        Map<String, Object> found = new HashMap<>();
        found.put("epoch", member.memberEpoch().orElse(null));
        found.put("upgraded", member.upgraded().orElse(null));
        found.put("instance", member.groupInstanceId().orElse(null));
        found.put("assigned", Driver.pairs(member.assignment().topicPartitions()));
        found.put("target", member.targetAssignment().map(it -> Driver.pairs(it.topicPartitions())).orElse(null));
        return found;
    }
}
