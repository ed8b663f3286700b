package tidemark;

import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.api.java.UDF1;

/**
 * Matches a line against some patterns. No pattern can use up a thread's stack or run for too long.
 *
 * Gives null for null, else an array: why the line is invalid, alone; or null, the number of the first pattern that matches,
 * and the text of each field. Janino compiles this: Java 8, without generics and lambdas. See docs/adr/0017.
 */
public class Patterns implements UDF1 {
    private static final long serialVersionUID = 1;
    // In bytes. A line that overflows a task's own stack is matched on a stack of this size, outside the heap.
    private static final long LARGE_STACK = 16L << 20;

    private static final String NO_PATTERN = "matches no pattern";

    private final String[] names;
    private final Pattern[] patterns;
    private final int[][] groups;
    private final int mostMillis;

    /** `groups`: for each pattern, the numbers of the groups that are the fields, in the order of the fields. */
    public Patterns(List names, List patterns, List groups, int mostMillis) {
        this.names = (String[]) names.toArray(new String[0]);
        this.patterns = (Pattern[]) patterns.toArray(new Pattern[0]);
        this.groups = new int[groups.size()][];
        for (int i = 0; i < this.groups.length; i++) {
            List numbers = (List) groups.get(i);
            this.groups[i] = new int[numbers.size()];
            for (int j = 0; j < numbers.size(); j++) {
                this.groups[i][j] = ((Integer) numbers.get(j)).intValue();
            }
        }
        this.mostMillis = mostMillis;
    }

    public Object call(Object given) throws InterruptedException {
        if (given == null) {
            return null;
        }
        String line = (String) given;
        for (int i = 0; i < patterns.length; i++) {
            Match match = new Match(patterns[i], line, mostMillis);
            match.run();
            if (match.overflowed) {
                match = new Match(patterns[i], line, mostMillis);
                match.runWithLargeStack();
            }
            if (match.overflowed) {
                return new String[] {"pattern " + names[i] + " needs too much stack"};
            }
            if (match.late) {
                return new String[] {"pattern " + names[i] + " took longer than " + mostMillis + " ms"};
            }
            if (match.matches) {
                return texts(i, match.matcher, line);
            }
        }
        return new String[] {NO_PATTERN};
    }

    private String[] texts(int number, Matcher matcher, String line) {
        int[] order = groups[number];
        String[] found = new String[order.length + 2];
        found[1] = Integer.toString(number);
        for (int i = 0; i < order.length; i++) {
            int start = matcher.start(order[i]);
            // Null for a group that took no part in the match.
            found[i + 2] = start < 0 ? null : line.substring(start, matcher.end(order[i]));
        }
        return found;
    }

    /** One pattern on one line. */
    private static class Match implements Runnable {
        final Matcher matcher;
        boolean matches;
        boolean overflowed;
        boolean late;

        Match(Pattern pattern, String line, int mostMillis) {
            this.matcher = pattern.matcher(new Watched(line, mostMillis));
        }

        public void run() {
            try {
                matches = matcher.matches();
            } catch (StackOverflowError e) {
                overflowed = true;
            } catch (Late e) {
                late = true;
            }
        }

        /** Matches in a thread of its own, which frees its stack when it ends. */
        void runWithLargeStack() throws InterruptedException {
            Thread thread = new Thread(null, this, "tidemark-patterns", LARGE_STACK);
            thread.setDaemon(true);
            thread.start();
            thread.join();
        }
    }

    /**
     * A line that counts how often a pattern looks at it: Java has no other way to end a match.
     *
     * Looks are the same for the same line, whatever the machine. A clock would make a line a row in one attempt, and a dead
     * letter in the next.
     */
    private static class Watched implements CharSequence {
        // As many as a usual processor does in a millisecond.
        private static final long LOOKS_PER_MILLI = 100000;
        // It exists before any stack overflows: a class whose first use fails stays unusable.
        private static final Late LATE = new Late();

        private final String line;
        private long left;

        Watched(String line, int mostMillis) {
            this.line = line;
            this.left = mostMillis * LOOKS_PER_MILLI;
        }

        public char charAt(int index) {
            if (--left < 0) {
                throw LATE;
            }
            return line.charAt(index);
        }

        public int length() {
            return line.length();
        }

        public CharSequence subSequence(int start, int end) {
            return line.substring(start, end);
        }

        public String toString() {
            return line;
        }
    }

    private static class Late extends RuntimeException {
        Late() {
            super("late", null, false, false);
        }
    }
}
