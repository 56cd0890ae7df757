import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.config.ConfigResource.Type;

/** Changes some configs of a broker on 127.0.0.1:(first argument) and prints all that it says of its configs. */
public class DescribeConfigs {
    public static void main(String[] args) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", "127.0.0.1:" + args[0]))) {
            Map<String, String> own = Map.of("retention.ms", "5000", "cleanup.policy", "compact,delete", "segment.bytes", "2000000");
            admin.createTopics(List.of(new NewTopic("t", 1, (short) 1).configs(own), new NewTopic("u", 1, (short) 1))).all().get();
            set(admin, new ConfigResource(Type.GROUP, "g"), "consumer.session.timeout.ms", "50000");
            ConfigResource broker = new ConfigResource(Type.BROKER, "1");
            set(admin, broker, "log.segment.bytes", "3000000", "log.cleaner.threads", "2", "listener.name.plaintext.max.connections", "50");
            ConfigResource all = new ConfigResource(Type.BROKER, "");
            set(admin, all, "log.segment.bytes", "4000000", "message.max.bytes", "2000000", "log.retention.ms", "7777777");
            // A change reaches the broker a moment after the controller has it; the last one that was made is the sign.
            while (!"7777777".equals(describe(admin, broker).get("log.retention.ms").value())) Thread.sleep(20);
            for (ConfigResource resource : List.of(broker, all, new ConfigResource(Type.TOPIC, "t"), new ConfigResource(Type.TOPIC, "u"),
                    new ConfigResource(Type.GROUP, "g"), new ConfigResource(Type.GROUP, "h")))
                for (ConfigEntry entry : describe(admin, resource).values()) print(resource, entry);
        }
    }

    static void set(Admin admin, ConfigResource resource, String... pairs) throws Exception {
        List<AlterConfigOp> ops = new ArrayList<>();
        for (int i = 0; i < pairs.length; i += 2)
            ops.add(new AlterConfigOp(new ConfigEntry(pairs[i], pairs[i + 1]), AlterConfigOp.OpType.SET));
        admin.incrementalAlterConfigs(Map.of(resource, ops)).all().get();
    }

    static TreeMap<String, ConfigEntry> describe(Admin admin, ConfigResource resource) throws Exception {
        TreeMap<String, ConfigEntry> entries = new TreeMap<>();
        DescribeConfigsOptions options = new DescribeConfigsOptions().includeSynonyms(true);
        for (ConfigEntry entry : admin.describeConfigs(List.of(resource), options).all().get().get(resource).entries())
            entries.put(entry.name(), entry);
        return entries;
    }

    static void print(ConfigResource resource, ConfigEntry entry) {
        List<String> synonyms = new ArrayList<>();
        for (ConfigEntry.ConfigSynonym s : entry.synonyms()) synonyms.add(s.source() + ":" + s.name() + "=" + s.value());
        System.out.println(String.join("\t", resource.type() + ":" + resource.name(), entry.name(), String.valueOf(entry.value()),
            entry.source().name(), entry.isReadOnly() ? "read-only" : "-", entry.isSensitive() ? "sensitive" : "-",
            entry.type().name(), String.join(" ", synonyms)));
    }
}
