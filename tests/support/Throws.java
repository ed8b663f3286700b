package tidemark;

import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.unsafe.Platform;

/** Throws what a text names, as `CLASS` or `CLASS: TEXT`, and gives any other text back. Janino compiles this. */
public class Throws implements UDF1 {
    private static final long serialVersionUID = 1;

    public Throws() {
    }

    public Object call(Object given) throws Exception {
        String text = (String) given;
        if (text == null || !text.startsWith("java.")) {
            return text;
        }
        int end = text.indexOf(": ");
        Class of = Class.forName(end < 0 ? text : text.substring(0, end));
        Object made = end < 0
            ? of.getDeclaredConstructor(new Class[0]).newInstance(new Object[0])
            : of.getConstructor(new Class[] {String.class}).newInstance(new Object[] {text.substring(end + 2)});
        Platform.throwException((Throwable) made);
        return null;
    }
}
