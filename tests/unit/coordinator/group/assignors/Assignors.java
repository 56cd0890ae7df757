import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Apache's assignors behind a pipe. A group is a line of parts between blanks: the assignor, topics as t:ID:COUNT and
 * members as m:NAME:INSTANCE:ID,ID:ID=P.P/ID=P ; ids are numbers above 1. The answer is a line NAME:ID=P.P/ID=P ...
 */
public class Assignors {
    static Uuid uuid(String id) {
        return new Uuid(0L, Long.parseLong(id) + 100);
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(answer(line.split(" ")));
            System.out.flush();
        }
    }

    static String answer(String[] parts) {
        ConsumerGroupPartitionAssignor assignor = parts[0].equals("range") ? new RangeAssignor() : new UniformAssignor();
        Map<Uuid, Integer> counts = new HashMap<>();
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new TreeMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        Set<Set<Uuid>> subscriptions = new HashSet<>();
        for (String part : parts) {
            String[] f = part.split(":", -1);
            if (f[0].equals("t")) counts.put(uuid(f[1]), Integer.parseInt(f[2]));
        }
        for (String part : parts) {
            String[] f = part.split(":", -1);
            if (!f[0].equals("m")) continue;
            Set<Uuid> topics = new HashSet<>();
            for (String id : f[3].split(",")) if (!id.isEmpty() && counts.containsKey(uuid(id))) topics.add(uuid(id));
            Map<Uuid, Set<Integer>> target = new HashMap<>();
            for (String owned : f[4].split("/")) {
                if (owned.isEmpty()) continue;
                String[] pair = owned.split("=");
                for (String number : pair[1].split("\\.")) {
                    int partition = Integer.parseInt(number);
                    target.computeIfAbsent(uuid(pair[0]), k -> new HashSet<>()).add(partition);
                    owners.computeIfAbsent(uuid(pair[0]), k -> new HashMap<>()).put(partition, f[1]);
                }
            }
            subscriptions.add(topics);
            Optional<String> instance = f[2].isEmpty() ? Optional.empty() : Optional.of(f[2]);
            members.put(f[1], new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), instance, topics, new Assignment(target)));
        }
        SubscriptionType type = subscriptions.size() <= 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
            public int numPartitions(Uuid topic) { return counts.getOrDefault(topic, -1); }
            public Set<String> racksForPartition(Uuid topic, int partition) { return Set.of(); }
        };
        long started = System.nanoTime();
        var found = assignor.assign(new GroupSpecImpl(members, type, owners), describer).members();
        StringBuilder text = new StringBuilder(Long.toString((System.nanoTime() - started) / 1000));
        for (String name : members.keySet()) {
            text.append(' ').append(name).append(':');
            if (!found.containsKey(name)) continue;
            String separator = "";
            for (var entry : new TreeMap<>(found.get(name).partitions()).entrySet()) {
                if (entry.getValue().isEmpty()) continue;
                text.append(separator).append(entry.getKey().getLeastSignificantBits() - 100).append('=');
                String dot = "";
                for (int partition : new TreeSet<>(entry.getValue())) {
                    text.append(dot).append(partition);
                    dot = ".";
                }
                separator = "/";
            }
        }
        return text.toString();
    }
}
