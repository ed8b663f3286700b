package tidemark;

import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;

/** Compiles each argument as a regular expression, and names those that are none: the number, and why. */
public class Regexes {
    public static void main(String[] regexes) {
        for (int number = 0; number < regexes.length; number++) {
            try {
                Pattern.compile(regexes[number]);
            } catch (PatternSyntaxException problem) {
                System.out.println(number + " " + problem.getDescription() + " near index " + problem.getIndex());
            }
        }
    }
}
