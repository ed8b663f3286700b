package tidemark;

import java.io.ByteArrayOutputStream;
import org.apache.spark.sql.api.java.UDF1;

/**
 * Makes marked texts of the numbers in a JSON text that a variant would write in another way: see json_text.py.
 *
 * Takes the text's bytes in UTF-8, and looks at each once. Gives null for null, and for brackets that are nested deeper than
 * something that calls itself for each of them may go. What is no JSON stays none. Janino compiles this: Java 8, without
 * generics and lambdas.
 */
public class Numbers implements UDF1 {
    private static final long serialVersionUID = 1;
    // A variant keeps an integer of so many digits, with or without so many more after the point.
    private static final int MAX_DIGITS = 18;

    private final int deepest;
    private final byte[] opening;

    public Numbers(Number deepest, String mark) {
        this.deepest = deepest.intValue();
        this.opening = ('"' + mark).getBytes(java.nio.charset.StandardCharsets.US_ASCII);
    }

    public Object call(Object given) {
        if (given == null) {
            return null;
        }
        byte[] text = (byte[]) given;
        ByteArrayOutputStream out = null;
        int written = 0;
        int depth = 0;
        int i = 0;
        while (i < text.length) {
            byte one = text[i];
            if (one == '"') {
                i = behindString(text, i);
            } else if (one == '-' || isDigit(one)) {
                int end = i + 1;
                while (end < text.length && isOfNumber(text[end])) {
                    end++;
                }
                if (isNumber(text, i, end) && !isKept(text, i, end) && !isKey(text, end)) {
                    if (out == null) {
                        out = new ByteArrayOutputStream(text.length + 64);
                    }
                    out.write(text, written, i - written);
                    out.write(opening, 0, opening.length);
                    out.write(text, i, end - i);
                    out.write('"');
                    written = end;
                }
                i = end;
            } else {
                if (one == '{' || one == '[') {
                    if (++depth > deepest) {
                        return null;
                    }
                } else if (one == '}' || one == ']') {
                    depth--;
                }
                i++;
            }
        }
        if (out == null) {
            return text;
        }
        out.write(text, written, text.length - written);
        return out.toByteArray();
    }

    /** Behind the quote that ends a text, or the end of all. */
    private static int behindString(byte[] text, int start) {
        int i = start + 1;
        while (i < text.length && text[i] != '"') {
            i += text[i] == '\\' ? 2 : 1;
        }
        return i + 1;
    }

    private static boolean isDigit(byte one) {
        return one >= '0' && one <= '9';
    }

    private static boolean isOfNumber(byte one) {
        return isDigit(one) || one == '.' || one == 'e' || one == 'E' || one == '+' || one == '-';
    }

    private static int behindDigits(byte[] text, int start, int end) {
        int i = start;
        while (i < end && isDigit(text[i])) {
            i++;
        }
        return i;
    }

    /** Whether all of it is a number of JSON. */
    private static boolean isNumber(byte[] text, int start, int end) {
        int first = text[start] == '-' ? start + 1 : start;
        int i = behindDigits(text, first, end);
        if (i == first || text[first] == '0' && i > first + 1) {
            return false;
        }
        if (i < end && text[i] == '.') {
            int point = i;
            i = behindDigits(text, point + 1, end);
            if (i == point + 1) {
                return false;
            }
        }
        if (i < end && (text[i] == 'e' || text[i] == 'E')) {
            int exponent = i + 1;
            if (exponent < end && (text[exponent] == '+' || text[exponent] == '-')) {
                exponent++;
            }
            i = behindDigits(text, exponent, end);
            if (i == exponent) {
                return false;
            }
        }
        return i == end;
    }

    /** Whether a variant writes a number as it is here. */
    private static boolean isKept(byte[] text, int start, int end) {
        int first = text[start] == '-' ? start + 1 : start;
        int point = behindDigits(text, first, end);
        if (point - first > MAX_DIGITS) {
            return false;
        }
        if (point == end) {
            return text[first] != '0' || first == start;
        }
        return text[point] == '.' && behindDigits(text, point + 1, end) == end
            && end - point - 1 <= MAX_DIGITS && text[end - 1] != '0';
    }

    /** Whether a colon follows: then it is no JSON, which no mark may hide. */
    private static boolean isKey(byte[] text, int end) {
        int i = end;
        while (i < text.length && (text[i] == ' ' || text[i] == '\t' || text[i] == '\r' || text[i] == '\n')) {
            i++;
        }
        return i < text.length && text[i] == ':';
    }
}
