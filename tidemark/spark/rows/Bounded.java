package tidemark;

import java.util.Iterator;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Passes on the rows that a transform makes, and fails where those of one message are too large together: see transform.py.
 *
 * Rows begin with topic, incarnation, partition and offset. Those that a generator makes of one message come one after the
 * other.
 *
 * Janino compiles this: Java 8, without generics and lambdas.
 */
public class Bounded implements FlatMapFunction {
    private static final long serialVersionUID = 1;

    private final long most;

    /** `most`: of the rows of one message, in bytes. */
    public Bounded(long most) {
        this.most = most;
    }

    public Iterator call(Object rows) {
        return new Rows((Iterator) rows);
    }

    /** Its name is the reason of the dead letter. */
    public static class RowsTooLarge extends RuntimeException {
        private static final long serialVersionUID = 1;

        RowsTooLarge(String said) {
            super(said);
        }
    }

    private class Rows implements Iterator {
        private final Iterator rows;
        private UTF8String topic;
        private int partition;
        private long offset;
        private long bytes;

        Rows(Iterator rows) {
            this.rows = rows;
        }

        public boolean hasNext() {
            return rows.hasNext();
        }

        public Object next() {
            UnsafeRow row = (UnsafeRow) rows.next();
            if (row.isNullAt(0) || row.isNullAt(2) || row.isNullAt(3)) {
                return row;
            }
            UTF8String at = row.getUTF8String(0);
            if (row.getInt(2) != partition || row.getLong(3) != offset || !at.equals(topic)) {
                topic = at.clone();
                partition = row.getInt(2);
                offset = row.getLong(3);
                bytes = 0;
            }
            bytes += row.getSizeInBytes();
            if (bytes > most) {
                throw new RowsTooLarge("the rows of one message have more than " + most + " bytes together");
            }
            return row;
        }

        public void remove() {
            throw new UnsupportedOperationException();
        }
    }
}
