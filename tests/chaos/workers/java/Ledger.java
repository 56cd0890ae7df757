import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Writes the history of one process, as tests/chaos/history.py reads it: each line with one call. */
class Ledger {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** One operation; written again whenever more of it is known. */
    class Op {
        private final Map<String, Object> fields = new LinkedHashMap<>();
        private final List<List<Object>> actions = new ArrayList<>();
        final int number;

        Op(boolean transactional) {
            number = ++made;
            fields.put("process", process);
            fields.put("number", number);
            fields.put("start", System.nanoTime());
            fields.put("transactional", transactional);
            fields.put("actions", actions);
        }

        /** A list: the caller may complete it later (an offset). */
        synchronized List<Object> add(Object... action) {
            List<Object> made = new ArrayList<>(java.util.Arrays.asList(action));
            actions.add(made);
            return made;
        }

        synchronized void offset(List<Object> send, long offset) {
            send.set(3, offset);
        }

        synchronized void write() {
            try {
                byte[] line = (JSON.writeValueAsString(fields) + "\n").getBytes(java.nio.charset.StandardCharsets.UTF_8);
                file.write(line);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        void decide() {
            fields.putIfAbsent("decided", System.nanoTime());
            write();
        }

        boolean isDecided() {
            return fields.containsKey("decided");
        }

        void end(String outcome, String note) {
            fields.put("end", System.nanoTime());
            fields.put("outcome", outcome);
            fields.put("note", note);
            write();
        }
    }

    private final FileOutputStream file;
    private final String process;
    private int made = 0;

    Ledger(String path, String process) throws IOException {
        this.file = new FileOutputStream(path, true);
        this.process = process;
    }

    Op begin(boolean transactional) {
        Op op = new Op(transactional);
        op.write();
        return op;
    }

    void note(Object... action) {
        Op op = new Op(false);
        op.add(action);
        op.end("ok", "");
    }

    void say(String text) {
        new Op(false).end("ok", text);
    }
}
