package tidemark;

import java.util.Iterator;
import java.util.NoSuchElementException;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.java.function.Function2;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.storage.BlockResult;
import org.apache.spark.storage.RDDBlockId;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag$;

/**
 * The dead letters among the rows that `Separating.java` has separated. Where Spark has kept those of a task, as a block of
 * the RDD `held`, the rows themselves are not asked for. Where it has not, or has lost them, the rows are computed again.
 *
 * Janino compiles this: Java 8, without generics and lambdas.
 */
public class DeadLetters implements Function2 {
    private static final long serialVersionUID = 1;
    private static final int OUTCOME = 4;
    // As tidemark/offsets/tallies.py numbers the outcomes: those after it are dead letters.
    private static final int SKIPPED = 1;

    private final int held;

    public DeadLetters(Number held) {
        this.held = held.intValue();
    }

    public Object call(Object task, Object rows) {
        RDDBlockId block = new RDDBlockId(held, ((Integer) task).intValue());
        Option found = SparkEnv.get().blockManager().get(block, ClassTag$.MODULE$.apply(InternalRow.class));
        if (found.isDefined()) {
            return CollectionConverters.asJava(((BlockResult) found.get()).data());
        }
        return new Found((Iterator) rows);
    }

    private static class Found implements Iterator {
        private final Iterator rows;
        private InternalRow next;

        Found(Iterator rows) {
            this.rows = rows;
        }

        public boolean hasNext() {
            while (next == null && rows.hasNext()) {
                InternalRow row = (InternalRow) rows.next();
                if (row.getByte(OUTCOME) > SKIPPED) {
                    next = row;
                }
            }
            return next != null;
        }

        public Object next() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            InternalRow row = next;
            next = null;
            return row;
        }

        public void remove() {
            throw new UnsupportedOperationException();
        }
    }
}
