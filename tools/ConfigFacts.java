import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.StringReader;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.ConfigSynonym;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.DynamicConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * Prints facts about Apache Kafka's configs; run by tools/extract_configs.py with Kafka's published jars on the class path.
 *
 * facts: one tab-separated line per config, in the form of src/tidelog/metadata/config/kafka.tsv.
 * properties: reads a .properties text in hexadecimal per line and prints its names and values, in hexadecimal, or "bad".
 * judge: reads "scope TAB name TAB value" lines and prints "ok TAB value as Kafka prints it" or "bad" for each.
 */
public class ConfigFacts {
    static final Map<String, ConfigDef> DEFS = new TreeMap<>();

    public static void main(String[] args) throws Exception {
        DEFS.put("broker", AbstractKafkaConfig.CONFIG_DEF);
        DEFS.put("dynamic", dynamicOnly());
        DEFS.put("topic", LogConfig.configDefCopy());
        DEFS.put("group", GroupConfig.CONFIG_DEF);
        DEFS.put("client-metrics", ClientMetricsConfigs.configDef());
        if (args[0].equals("facts")) facts();
        else if (args[0].equals("properties")) properties();
        else judge();
    }

    static ConfigDef dynamicOnly() {
        ConfigDef def = new ConfigDef();
        for (ConfigDef.ConfigKey key : new TreeMap<>(DynamicConfig.Broker.configKeys()).values())
            if (!AbstractKafkaConfig.CONFIG_DEF.configKeys().containsKey(key.name)) def.define(key);
        return def;
    }

    static void facts() throws Exception {
        for (String scope : DEFS.keySet())
            for (ConfigDef.ConfigKey key : new TreeMap<>(DEFS.get(scope).configKeys()).values())
                System.out.println(String.join("\t", scope, key.name, key.type.name().toLowerCase(), initial(key),
                    validator(key.validator), key.importance.name().toLowerCase(), flags(scope, key), updates(scope, key),
                    synonyms(scope, key)));
    }

    static String initial(ConfigDef.ConfigKey key) {
        if (!key.hasDefault()) return "required";
        return key.defaultValue == null ? "null" : "=" + ConfigDef.convertToString(key.defaultValue, key.type);
    }

    static String validator(ConfigDef.Validator v) throws Exception {
        if (v == null) return "-";
        switch (v.getClass().getSimpleName()) {
            case "Range":
                return "range " + bound(get(v, "min")) + " " + bound(get(v, "max"));
            case "ValidString":
            case "CaseInsensitiveValidString":
                String word = v.getClass().getSimpleName().startsWith("Case") ? "nocase " : "in ";
                return word + choices(get(v, "validStrings"));
            case "ValidList":
                return "list " + ((boolean) get(v, "isEmptyAllowed") ? "empty" : "filled") + " "
                    + ((boolean) get(v, "isNullAllowed") ? "null" : "set") + " "
                    + choices(get(get(v, "validString"), "validStrings"));
            case "NonEmptyString": return "filled";
            case "NonNullValidator": return "set";
            case "ControllerQuorumVotersValidator": return "voters";
            case "ControllerQuorumBootstrapServersValidator": return "hosts";
            case "ThrottledReplicaListValidator": return "throttled";
            default:
                if (v.toString().equals("[1,...,9] or -1")) return "range 1 9 or -1";
                if (v.toString().contains("by_duration")) return "reset";
                throw new IllegalStateException("unknown validator " + v.getClass() + " " + v);
        }
    }

    static String bound(Object number) {
        return number == null ? "*" : number.toString();
    }

    // Several of Kafka's lists of choices come out of hash sets: sorted, so that two runs print the same.
    static String choices(Object values) {
        List<String> sorted = new ArrayList<>();
        for (Object value : (Iterable<?>) values) sorted.add(value.toString());
        Collections.sort(sorted);
        return sorted.isEmpty() ? "*" : String.join("|", sorted);
    }

    static Object get(Object target, String field) throws Exception {
        Field f = target.getClass().getDeclaredField(field);
        f.setAccessible(true);
        return f.get(target);
    }

    static String flags(String scope, ConfigDef.ConfigKey key) {
        List<String> flags = new ArrayList<>();
        if (key.internalConfig) flags.add("internal");
        if (scope.equals("broker") && DynamicBrokerConfig.DYNAMIC_SECURITY_CONFIGS.contains(key.name)) flags.add("per-listener");
        return flags.isEmpty() ? "-" : String.join(",", flags);
    }

    static String updates(String scope, ConfigDef.ConfigKey key) {
        if (!scope.equals("broker") && !scope.equals("dynamic")) return "-";
        return DynamicBrokerConfig.dynamicConfigUpdateModes().getOrDefault(key.name, "read-only");
    }

    static String synonyms(String scope, ConfigDef.ConfigKey key) {
        List<String> names = new ArrayList<>();
        if (scope.equals("topic"))
            for (ConfigSynonym s : ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.getOrDefault(key.name, List.of()))
                names.add(factor(s) == 1 ? s.name() : s.name() + "*" + factor(s));
        if (scope.equals("group")) GroupConfig.brokerSynonym(key.name).ifPresent(names::add);
        if (scope.equals("broker"))
            if (DynamicBrokerConfig.brokerConfigSynonyms(key.name, false).size() > 1)
                names.addAll(DynamicBrokerConfig.brokerConfigSynonyms(key.name, false));
        return names.isEmpty() ? "-" : String.join(",", names);
    }

    static long factor(ConfigSynonym synonym) {
        return Long.parseLong(synonym.converter().apply("1"));
    }

    static void judge() throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split("\t", 3);
            ConfigDef.ConfigKey key = DEFS.get(parts[0]).configKeys().get(parts[1]);
            Map<String, String> props = new HashMap<>();
            props.put(key.name, parts[2]);
            try {
                Object value = new ConfigDef().define(key).parse(props).get(key.name);
                System.out.println("ok\t" + ConfigDef.convertToString(value, key.type));
            } catch (RuntimeException e) {
                System.out.println("bad");
            }
        }
    }

    static void properties() throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Properties found = new Properties();
            try {
                found.load(new StringReader(new String(HexFormat.of().parseHex(line), StandardCharsets.UTF_8)));
            } catch (IllegalArgumentException e) {
                System.out.println("bad");
                continue;
            }
            List<String> pairs = new ArrayList<>();
            for (String name : new TreeSet<>(found.stringPropertyNames())) pairs.add(hex(name) + "=" + hex(found.getProperty(name)));
            System.out.println(String.join(" ", pairs));
        }
    }

    static String hex(String text) {
        return HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_16BE));
    }
}
