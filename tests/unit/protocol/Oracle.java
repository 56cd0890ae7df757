// Apache Kafka's own generated classes as a witness: one question per line on stdin, one answer per line on stdout.
//   R class version hex      read at the version, write at the version
//   C class from to hex      read at one version, write at another
//   D class version          write a fresh object
//   U class version hex      read, hang an unknown tag on every struct, write
//   J class version hex      read, show as JSON
//   E                        every error code: number name retriable, separated by commas
// The answer is hex or JSON, or "!" and the exception.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.StringJoiner;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.RawTaggedField;

public class Oracle {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(System.out, false);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = answer(line.split(" ", -1));
            } catch (Throwable error) {
                Throwable cause = error.getCause() == null ? error : error.getCause();
                answer = "!" + cause.toString().replace('\n', ' ');
            }
            out.println(answer);
            out.flush();
        }
    }

    static String answer(String[] words) throws Exception {
        if (words[0].equals("E")) {
            return errors();
        }
        Class<?> type = Class.forName(words[1]);
        short version = Short.parseShort(words[2]);
        switch (words[0]) {
            case "D":
                return write((Message) type.getConstructor().newInstance(), version);
            case "R":
                return write(read(type, version, words[3]), version);
            case "C":
                return write(read(type, version, words[4]), Short.parseShort(words[3]));
            case "U": {
                Message message = read(type, version, words[3]);
                tag(message);
                return write(message, version);
            }
            case "J": {
                Message message = read(type, version, words[3]);
                Class<?> converter = Class.forName(words[1] + "JsonConverter");
                return converter.getMethod("write", type, short.class).invoke(null, message, version).toString();
            }
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    static Message read(Class<?> type, short version, String hex) throws Exception {
        Message message = (Message) type.getConstructor().newInstance();
        ByteBuffer buffer = ByteBuffer.wrap(HexFormat.of().parseHex(hex));
        message.read(new ByteBufferAccessor(buffer), version);
        if (buffer.hasRemaining()) {
            throw new IllegalStateException(buffer.remaining() + " bytes left");
        }
        return message;
    }

    static String write(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        if (buffer.hasRemaining()) {
            throw new IllegalStateException("another size than announced");
        }
        return HexFormat.of().formatHex(buffer.array());
    }

    static void tag(Message message) throws Exception {
        for (Field field : message.getClass().getDeclaredFields()) {
            if (Modifier.isStatic(field.getModifiers()) || field.getName().startsWith("_")) {
                continue;
            }
            field.setAccessible(true);
            Object value = field.get(message);
            if (value instanceof Message) {
                tag((Message) value);
            } else if (value instanceof Iterable) {
                for (Object element : (Iterable<?>) value) {
                    if (element instanceof Message) {
                        tag((Message) element);
                    }
                }
            }
        }
        message.unknownTaggedFields().add(new RawTaggedField(9999, new byte[] {1, 2, 3}));
    }

    static String errors() {
        StringJoiner all = new StringJoiner(",");
        for (Errors error : Errors.values()) {
            all.add(error.code() + " " + error.name() + " " + (error.exception() instanceof RetriableException));
        }
        return all.toString();
    }
}
