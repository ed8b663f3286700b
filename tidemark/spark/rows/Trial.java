package tidemark;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.Partition;
import org.apache.spark.SparkEnv;
import org.apache.spark.SparkException;
import org.apache.spark.SparkThrowable;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskContext$;
import org.apache.spark.TaskContextImpl;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.api.python.PythonException;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Tries a computation on some messages, then on halves of those that fail, and so on, in one task: see trials.py. One bad
 * message among n is found by 2 log n tries at most.
 *
 * Rows come in with those of a message together, the first with index 0. For each message that the computation fails on,
 * its first row comes out, with the error's condition or class (null for an error of Python), and one line of the error's
 * text. An instance without a computation gives the rows that this thread is trying.
 *
 * Whatever the computation throws is the message's, but for what ends this task, or says that Spark lacks something: see
 * own_errors.py. Also an error of linking: a value may ask for a class that no other value asks for, and what all values
 * need is loaded before. Nothing is read from a server while rows are tried.
 *
 * Janino compiles this: Java 8, without generics and lambdas.
 */
public class Trial implements FlatMapFunction {
    private static final long serialVersionUID = 1;
    private static final ThreadLocal TRIED = new ThreadLocal();
    // The first try has at most so many messages, of at most so many bytes.
    private static final int MAX_MESSAGES = 4096;
    private static final long MAX_BYTES = 16L << 20;

    private final RDD computed;
    private final Partition[] parts;
    private final int index;
    private final String[] never;
    private final String[] ofServers;
    private final String[] calledByAll;

    /** `index`: the column of the index. The others are the lists of own_errors.py, a line each. */
    public Trial(RDD computed, int index, String never, String ofServers, String calledByAll) {
        this.computed = computed;
        this.parts = computed == null ? null : computed.partitions();
        this.index = index;
        this.never = never.split("\n");
        this.ofServers = ofServers.split("\n");
        this.calledByAll = calledByAll.split("\n");
    }

    public Iterator call(Object rows) {
        if (computed != null) {
            return new Failing((Iterator) rows);
        }
        List messages = (List) TRIED.get();
        if (messages == null) {
            throw new IllegalStateException("nothing is being tried in this thread");
        }
        List tried = new ArrayList();
        for (int i = 0; i < messages.size(); i++) {
            tried.addAll((List) messages.get(i));
        }
        return tried.iterator();
    }

    /**
     * Adds the messages that the computation fails on alone, and says whether it fails on all of them.
     *
     * `known`: the computation is known to fail on these messages, and need not be tried on all of them.
     */
    private boolean addFailing(List messages, boolean known, List found) {
        int half = messages.size() / 2;
        Throwable problem = known && half > 0 ? null : failure(messages);
        if (problem == null && !(known && half > 0)) {
            return false;
        }
        if (half == 0) {
            found.add(failed(messages, problem));
            return true;
        }
        int before = found.size();
        addFailing(messages.subList(0, half), false, found);
        addFailing(messages.subList(half, messages.size()), found.size() == before, found);
        return true;
    }

    /**
     * Adds messages without which the computation fails no more, where it fails on some together: of the shortest beginning
     * that fails, the last one. failing_messages.py does the same.
     */
    private void addTogether(List messages, List found) {
        List rest = new ArrayList(messages);
        Throwable problem = rest.isEmpty() ? null : failure(rest);
        while (problem != null) {
            int passing = 0;
            int failing = rest.size();
            while (failing - passing > 1) {
                int middle = (passing + failing) / 2;
                Throwable one = failure(rest.subList(0, middle));
                if (one == null) {
                    passing = middle;
                } else {
                    failing = middle;
                    problem = one;
                }
            }
            found.add(failed(rest.subList(failing - 1, failing), problem));
            rest.remove(failing - 1);
            problem = rest.isEmpty() ? null : failure(rest);
        }
    }

    private static JoinedRow failed(List messages, Throwable problem) {
        InternalRow first = (InternalRow) ((List) messages.get(0)).get(0);
        return new JoinedRow(first, new GenericInternalRow(said(problem)));
    }

    /** The error that a message causes, or null. Throws any other error. */
    private Throwable failure(List messages) {
        TaskContext task = TaskContext.get();
        // The computation frees its memory and its Python worker when its task ends, so it gets a task context of its own.
        TaskContextImpl own = new TaskContextImpl(
            task.stageId(), task.stageAttemptNumber(), task.partitionId(), task.taskAttemptId(), task.attemptNumber(),
            task.numPartitions(), task.taskMemoryManager(), task.getLocalProperties(), SparkEnv.get().metricsSystem(),
            task.taskMetrics(), task.cpus(), task.resources());
        TRIED.set(messages);
        TaskContext$.MODULE$.setTaskContext(own);
        try {
            for (int i = 0; i < parts.length; i++) {
                scala.collection.Iterator made = computed.iterator(parts[i], own);
                while (made.hasNext()) {
                    made.next();
                }
            }
            return null;
        } catch (Throwable problem) {
            // Where a stack has overflowed it is free again, and of the rows that were tried nothing is left.
            Throwable cause = problem;
            for (Throwable one = problem; one != null; one = one.getCause()) {
                if (isNoMessages(one)) {
                    Platform.throwException(problem);
                }
                if (one instanceof PythonException || !isNamed(cause) && isNamed(one)) {
                    cause = one;
                }
            }
            while (!isNamed(cause) && cause.getMessage() == null && cause.getCause() != null) {
                cause = cause.getCause();
            }
            return cause;
        } finally {
            try {
                own.markTaskCompleted(scala.Option.empty());
            } finally {
                TaskContext$.MODULE$.setTaskContext(task);
                TRIED.remove();
            }
        }
    }

    /** Whether an error is no message's: the task is to end, or Python's worker, memory, a disk or a server has gone. */
    private boolean isNoMessages(Throwable problem) {
        String text = String.valueOf(problem.getMessage());
        if (isOf(never, problem)) {
            return !isBeyondArrays(problem);
        }
        return !isOfAnExpression(problem)
            && (isOf(ofServers, problem)
                || problem.getClass() == SparkException.class && text.startsWith("Python worker")
                || problem.getClass() == IOException.class && text.startsWith("No space left on device"));
    }

    /** Whether an error's class is one of these, or extends one. */
    private static boolean isOf(String[] names, Throwable problem) {
        for (Class one = problem.getClass(); one != null; one = one.getSuperclass()) {
            if (begins(names, one.getName())) {
                return true;
            }
        }
        return false;
    }

    /** As own_errors.py. */
    private boolean isOfAnExpression(Throwable problem) {
        StackTraceElement[] places = problem.getStackTrace();
        for (int i = 0; i < places.length; i++) {
            String name = places[i].getClassName();
            if (name.startsWith("org.apache.spark.sql.catalyst.expressions.")) {
                return true;
            }
            if (name.startsWith("org.apache.spark.") && !begins(calledByAll, name)) {
                return false;
            }
        }
        return false;
    }

    private static boolean begins(String[] words, String name) {
        for (int i = 0; i < words.length; i++) {
            if (name.startsWith(words[i])) {
                return true;
            }
        }
        return false;
    }

    /**
     * Whether Java's error for memory is about an array or a text that is longer than any may be, whatever memory there is.
     *
     * The text is Java's own; older versions have none. own_errors.py knows it, too.
     */
    private static boolean isBeyondArrays(Throwable problem) {
        String text = problem.getMessage();
        return problem.getClass() == OutOfMemoryError.class
            && (text == null || text.startsWith("Requested array size") || text.startsWith("Required "));
    }

    /** Whether an error says what went wrong: one of Python's, or one of Spark's with a condition. */
    private static boolean isNamed(Throwable problem) {
        return problem instanceof PythonException
            || problem instanceof SparkThrowable && ((SparkThrowable) problem).getCondition() != null;
    }

    private static Object[] said(Throwable problem) {
        String text = String.valueOf(problem.getMessage() == null ? problem : problem.getMessage()).trim();
        if (problem instanceof PythonException) {
            // The end of a traceback. Spark 4.1 and newer put the error's state after it.
            text = text.replaceAll("\\s+SQLSTATE: \\w+$", "");
            return new Object[] {null, UTF8String.fromString(text.substring(text.lastIndexOf('\n') + 1))};
        }
        String condition = isNamed(problem) ? ((SparkThrowable) problem).getCondition() : null;
        return new Object[] {
            UTF8String.fromString(condition == null ? problem.getClass().getSimpleName() : condition),
            UTF8String.fromString(text.split("\n")[0])
        };
    }

    private class Failing implements Iterator {
        private final Iterator rows;
        private InternalRow next;
        private Iterator found = new ArrayList().iterator();

        Failing(Iterator rows) {
            this.rows = rows;
            advance();
        }

        private void advance() {
            next = rows.hasNext() ? ((InternalRow) rows.next()).copy() : null;
        }

        public boolean hasNext() {
            while (!found.hasNext() && next != null) {
                List failing = new ArrayList();
                List messages = someMessages();
                if (addFailing(messages, false, failing) && failing.isEmpty()) {
                    addTogether(messages, failing);
                }
                found = failing.iterator();
            }
            return found.hasNext();
        }

        private List someMessages() {
            List messages = new ArrayList();
            long bytes = 0;
            while (next != null) {
                if (next.getInt(index) == 0 || messages.isEmpty()) {
                    if (messages.size() == MAX_MESSAGES || bytes > MAX_BYTES) {
                        break;
                    }
                    messages.add(new ArrayList());
                }
                ((List) messages.get(messages.size() - 1)).add(next);
                bytes += ((UnsafeRow) next).getSizeInBytes();
                advance();
            }
            return messages;
        }

        public Object next() {
            return found.next();
        }

        public void remove() {
            throw new UnsupportedOperationException();
        }
    }
}
