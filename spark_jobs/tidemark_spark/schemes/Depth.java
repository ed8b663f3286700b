package tidemark;

import org.apache.spark.sql.api.java.UDF1;

/**
 * Whether brackets in a JSON text are nested deeper than something that calls itself for each of them may go: see json_text.py.
 *
 * Takes the text's bytes in UTF-8, and looks at each once. Gives null for null. Janino compiles this: Java 8, without
 * generics and lambdas.
 */
public class Depth implements UDF1 {
    private static final long serialVersionUID = 1;

    private final int deepest;

    public Depth(Number deepest) {
        this.deepest = deepest.intValue();
    }

    public Object call(Object given) {
        if (given == null) {
            return null;
        }
        byte[] text = (byte[]) given;
        int depth = 0;
        boolean quoted = false;
        for (int i = 0; i < text.length; i++) {
            byte one = text[i];
            if (quoted) {
                if (one == '\\') {
                    i++;
                } else if (one == '"') {
                    quoted = false;
                }
            } else if (one == '"') {
                quoted = true;
            } else if (one == '{' || one == '[') {
                if (++depth > deepest) {
                    return Boolean.TRUE;
                }
            } else if (one == '}' || one == ']') {
                depth--;
            }
        }
        return Boolean.FALSE;
    }
}
