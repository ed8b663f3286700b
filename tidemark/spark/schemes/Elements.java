package tidemark;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.api.java.UDF1;

/**
 * Takes the elements of a JSON array out of its text, each as it stands there; of a string its text.
 *
 * Takes the bytes of a text that is JSON in UTF-8, and gives an array of bytes. Gives null for another value than an array.
 * Janino compiles this: Java 8, without generics and lambdas.
 */
public class Elements implements UDF1 {
    private static final long serialVersionUID = 1;

    private final String key;

    /** `key`: the array is the member of an object by this name; null for the value itself. */
    public Elements(String key) {
        this.key = key;
    }

    public Object call(Object given) {
        if (given == null) {
            return null;
        }
        byte[] text = (byte[]) given;
        int start = behindSpace(text, 0);
        if (key != null) {
            start = isAt(text, start, '{') ? member(text, start + 1) : text.length;
        }
        if (!isAt(text, start, '[')) {
            return null;
        }
        List found = new ArrayList();
        int i = behindSpace(text, start + 1);
        while (i < text.length && text[i] != ']') {
            int end = behindValue(text, i);
            found.add(text[i] == '"' ? unquoted(text, i, end).getBytes(StandardCharsets.UTF_8) : Arrays.copyOfRange(text, i, end));
            i = behindSpace(text, end);
            if (isAt(text, i, ',')) {
                i = behindSpace(text, i + 1);
            }
        }
        return found.toArray(new byte[0][]);
    }

    /** Where the value of the key begins; the end of all if it is not there. */
    private int member(byte[] text, int start) {
        int i = behindSpace(text, start);
        while (isAt(text, i, '"')) {
            int end = behindValue(text, i);
            boolean found = unquoted(text, i, end).equals(key);
            i = behindSpace(text, end);
            i = behindSpace(text, i + 1);
            if (found) {
                return i;
            }
            i = behindSpace(text, behindValue(text, i));
            i = behindSpace(text, i + 1);
        }
        return text.length;
    }

    private static boolean isAt(byte[] text, int i, char wanted) {
        return i < text.length && text[i] == wanted;
    }

    private static boolean isSpace(byte one) {
        return one == ' ' || one == '\t' || one == '\r' || one == '\n';
    }

    private static int behindSpace(byte[] text, int start) {
        int i = start;
        while (i < text.length && isSpace(text[i])) {
            i++;
        }
        return i;
    }

    /** Behind the value that begins somewhere. It has a byte at least. */
    private static int behindValue(byte[] text, int start) {
        int depth = 0;
        int i = start;
        while (i < text.length) {
            byte one = text[i];
            if (one == '"') {
                i++;
                while (i < text.length && text[i] != '"') {
                    i += text[i] == '\\' ? 2 : 1;
                }
                i++;
            } else if (one == '{' || one == '[') {
                depth++;
                i++;
            } else if (one == '}' || one == ']') {
                if (depth == 0) {
                    break;
                }
                depth--;
                i++;
            } else if (depth == 0 && (one == ',' || isSpace(one))) {
                break;
            } else {
                i++;
                continue;
            }
            if (depth == 0) {
                break;
            }
        }
        return Math.min(Math.max(i, start + 1), text.length);
    }

    private static String unquoted(byte[] text, int start, int end) {
        String raw = new String(text, start + 1, end - start - 2, StandardCharsets.UTF_8);
        if (raw.indexOf('\\') < 0) {
            return raw;
        }
        StringBuilder out = new StringBuilder(raw.length());
        for (int i = 0; i < raw.length(); i++) {
            char one = raw.charAt(i);
            if (one == '\\') {
                i++;
                one = raw.charAt(i);
                int at = "bfnrt".indexOf(one);
                if (at >= 0) {
                    one = "\b\f\n\r\t".charAt(at);
                } else if (one == 'u') {
                    one = (char) Integer.parseInt(raw.substring(i + 1, i + 5), 16);
                    i += 4;
                }
            }
            out.append(one);
        }
        return out.toString();
    }
}
