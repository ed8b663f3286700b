package tidemark;

import java.math.BigDecimal;
import java.math.MathContext;
import java.math.RoundingMode;
import org.apache.spark.sql.api.java.UDF1;

/**
 * Whether a number in text is one that a double, or a float, holds: null for null, and for what is no number.
 *
 * A double holds the numbers that it is written as, with however many digits: 0.1, 0.10000000000000001, 1e23. Another number,
 * like 2^53 + 1 or one of 20 digits behind the point, would become its neighbour. So the double's own value, cut to as many
 * digits as the text has, has to be the number. tidemark/schemes/texts.py says the same in Python.
 *
 * Janino compiles this: Java 8, without generics and lambdas.
 */
public class ExactDouble implements UDF1 {
    private static final long serialVersionUID = 1;
    // Longer texts have digits that no double has. Java would take long for an exponent of many digits.
    private static final int MOST = 1200;

    private final boolean single;

    /** `single`: a number of 32 bits, and not a double. */
    public ExactDouble(Boolean single) {
        this.single = single.booleanValue();
    }

    public Object call(Object given) {
        if (given == null) {
            return null;
        }
        String text = ((String) given).trim();
        try {
            double found = single ? (double) Float.parseFloat(text) : Double.parseDouble(text);
            if (Double.isInfinite(found)) {
                return Boolean.FALSE;
            }
            if (found == 0) {
                // Whatever the exponent is: a nought has no other digit before it.
                return Boolean.valueOf(!text.split("[eE]")[0].matches(".*[1-9].*"));
            }
            // Noughts at either end say nothing.
            text = text.replaceFirst("^([+-]?)0++(?=[0-9])", "$1").replaceFirst("(\\.(?:[0-9]*[1-9])?)0++(?=$|[eE])", "$1");
            if (text.length() > MOST) {
                return Boolean.FALSE;
            }
            BigDecimal number = new BigDecimal(text).stripTrailingZeros();
            BigDecimal held = new BigDecimal(found).round(new MathContext(number.precision(), RoundingMode.HALF_EVEN));
            return Boolean.valueOf(held.compareTo(number) == 0);
        } catch (NumberFormatException problem) {
            return null;
        }
    }
}
