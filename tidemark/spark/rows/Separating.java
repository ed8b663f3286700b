package tidemark;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.Function2;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.storage.RDDBlockId;
import org.apache.spark.storage.StorageLevel;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.util.CollectionAccumulator;
import org.apache.spark.util.LongAccumulator;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag$;

/**
 * Separates the rows that are stored from dead letters, and counts all of them by their outcomes and blocks of offsets.
 *
 * Takes rows with topic, incarnation, partition, offset, outcome (as tidemark/offsets/tallies.py numbers them), then the
 * stream's fields, then whether it is a tombstone, then what dead letters need, first their reason. Each message has one row. Passes on the rows that are stored, with three more
 * columns: the hash of the message, that of the row, and the digest of the fields (tidemark/offsets/hashing.py).
 *
 * `schema` is the struct of the fields, as Spark's JSON of a type.
 *
 * At the end of a task, `counted` gets a line for each block: topic, incarnation, partition, number of the block, then for
 * each outcome the number of messages and the XOR of their hashes, then the XOR of the hashes of rows, and that of digests.
 * `deadBytes` gets the bytes of the dead letters. If these are at most `mostBytes`, Spark keeps the task's dead letters, as a
 * block of the RDD `held` (see `DeadLetters.java`). A dead letter whose reason ends with `never` (unless it is empty) ends
 * the task.
 *
 * `names` is the number of the column with names that no field has, -1 if there is none. `unknown` gets a line with how many
 * messages have some, and one for each name: how many have it, and its bytes in hexadecimal. Only some names of a task are
 * counted.
 *
 * Janino compiles this: Java 8, without generics and lambdas.
 */
public class Separating implements Function2 {
    private static final long serialVersionUID = 1;
    private static final long SPARK_SEED = 42;
    private static final int TOPIC = 0;
    private static final int INCARNATION = 1;
    private static final int PARTITION = 2;
    private static final int OFFSET = 3;
    private static final int OUTCOME = 4;
    private static final int FIELDS = 5;
    private static final int OUTCOMES = 4;
    private static final int STORED = 0;
    private static final int SKIPPED = 1;
    // In the sums of a block: a number and an XOR for each outcome, then these two.
    private static final int ROWS = 2 * OUTCOMES;
    private static final int CONTENT = ROWS + 1;
    private static final int NULL_BITS = 64;
    private static final int MAX_NAMES = 1000;

    // A letter for each field, by which its value is got and hashed.
    private final char[] kinds;
    private final DataType[] types;
    private final long size;
    private final long mostBytes;
    private final String never;
    private final int held;
    private final CollectionAccumulator counted;
    private final LongAccumulator deadBytes;
    private final int names;
    private final CollectionAccumulator unknown;

    public Separating(
        String schema,
        Number size,
        Number mostBytes,
        String never,
        Number held,
        CollectionAccumulator counted,
        LongAccumulator deadBytes,
        Number names,
        CollectionAccumulator unknown
    ) {
        StructField[] fields = ((StructType) DataType.fromJson(schema)).fields();
        this.kinds = new char[fields.length];
        this.types = new DataType[fields.length];
        for (int i = 0; i < fields.length; i++) {
            types[i] = fields[i].dataType();
            kinds[i] = kind(types[i]);
        }
        this.size = size.longValue();
        this.mostBytes = mostBytes.longValue();
        this.never = never;
        this.held = held.intValue();
        this.counted = counted;
        this.deadBytes = deadBytes;
        this.names = names.intValue();
        this.unknown = unknown;
    }

    public Object call(Object task, Object rows) {
        return new Stored(((Integer) task).intValue(), (Iterator) rows);
    }

    private static long hash(UTF8String text, long seed) {
        return XXH64.hashUnsafeBytes(text.getBaseObject(), text.getBaseOffset(), text.numBytes(), seed);
    }

    private static long hash(byte[] bytes, int length, long seed) {
        return XXH64.hashUnsafeBytes(bytes, Platform.BYTE_ARRAY_OFFSET, length, seed);
    }

    private static long hash(double number, long seed) {
        return XXH64.hashLong(number == 0.0 ? 0L : Double.doubleToLongBits(number), seed);
    }

    private static byte[] unscaled(Decimal number) {
        return number.toJavaBigDecimal().unscaledValue().toByteArray();
    }

    private static char kind(DataType type) {
        if (type instanceof StringType || type instanceof BinaryType) {
            return 's';
        }
        if (type instanceof LongType || type instanceof TimestampType || type instanceof TimestampNTZType) {
            return 'l';
        }
        if (type instanceof IntegerType || type instanceof DateType) {
            return 'i';
        }
        if (type instanceof ShortType) {
            return 'h';
        }
        if (type instanceof ByteType) {
            return 'y';
        }
        if (type instanceof DoubleType) {
            return 'd';
        }
        if (type instanceof FloatType) {
            return 'f';
        }
        if (type instanceof BooleanType) {
            return 'b';
        }
        if (type instanceof DecimalType) {
            return 'm';
        }
        if (type instanceof ArrayType || type instanceof MapType || type instanceof StructType) {
            return 'n';
        }
        throw new IllegalArgumentException("no digest of " + type);
    }

    /** Bytes one after the other, which are written again and again. */
    private static class Written implements Serializable {
        byte[] bytes = new byte[256];
        int length = 0;

        void add(byte[] more) {
            room(more.length);
            System.arraycopy(more, 0, bytes, length, more.length);
            length += more.length;
        }

        void addByte(int one) {
            room(1);
            bytes[length++] = (byte) one;
        }

        void addInt(int number) {
            for (int shift = 24; shift >= 0; shift -= 8) {
                addByte(number >> shift);
            }
        }

        void addLong(long number) {
            addInt((int) (number >> 32));
            addInt((int) number);
        }

        private void room(int more) {
            if (length + more > bytes.length) {
                long wanted = Math.max((long) length + more, Math.min(2L * bytes.length, Integer.MAX_VALUE - 16));
                if (wanted > Integer.MAX_VALUE - 16) {
                    throw new IllegalStateException("tidemark: a value of more than 2 GB has no digest");
                }
                bytes = Arrays.copyOf(bytes, (int) wanted);
            }
        }
    }

    /** Writes the canonical bytes of a value (tidemark/types/digests.py), which may be null. */
    private static void canonical(SpecializedGetters from, int at, DataType type, Written into) {
        if (from.isNullAt(at)) {
            into.addByte(0);
            return;
        }
        into.addByte(1);
        switch (kind(type)) {
            case 's':
                byte[] content = type instanceof BinaryType ? from.getBinary(at) : from.getUTF8String(at).getBytes();
                into.addInt(content.length);
                into.add(content);
                break;
            case 'l':
                into.addLong(from.getLong(at));
                break;
            case 'i':
                into.addLong(from.getInt(at));
                break;
            case 'h':
                into.addLong(from.getShort(at));
                break;
            case 'y':
                into.addLong(from.getByte(at));
                break;
            case 'd':
                into.addLong(hash(from.getDouble(at), SPARK_SEED));
                break;
            case 'f':
                into.addLong(hash((double) from.getFloat(at), SPARK_SEED));
                break;
            case 'b':
                into.addByte(from.getBoolean(at) ? 1 : 0);
                break;
            case 'm':
                DecimalType decimal = (DecimalType) type;
                byte[] digits = unscaled(from.getDecimal(at, decimal.precision(), decimal.scale()));
                into.addByte(decimal.scale());
                into.addLong(hash(digits, digits.length, SPARK_SEED));
                break;
            default:
                nested(from, at, type, into);
        }
    }

    private static void nested(SpecializedGetters from, int at, DataType type, Written into) {
        if (type instanceof StructType) {
            StructField[] members = ((StructType) type).fields();
            InternalRow row = from.getStruct(at, members.length);
            for (int i = 0; i < members.length; i++) {
                canonical(row, i, members[i].dataType(), into);
            }
            return;
        }
        if (type instanceof ArrayType) {
            ArrayData elements = from.getArray(at);
            DataType element = ((ArrayType) type).elementType();
            into.addInt(elements.numElements());
            for (int i = 0; i < elements.numElements(); i++) {
                canonical(elements, i, element, into);
            }
            return;
        }
        MapData map = from.getMap(at);
        MapType kinds = (MapType) type;
        byte[][] entries = new byte[map.numElements()][];
        for (int i = 0; i < entries.length; i++) {
            Written entry = new Written();
            canonical(map.keyArray(), i, kinds.keyType(), entry);
            canonical(map.valueArray(), i, kinds.valueType(), entry);
            entries[i] = Arrays.copyOf(entry.bytes, entry.length);
        }
        Arrays.sort(entries, new Unsigned());
        into.addInt(entries.length);
        for (int i = 0; i < entries.length; i++) {
            into.add(entries[i]);
        }
    }

    private static class Unsigned implements Comparator {
        public int compare(Object left, Object right) {
            return Arrays.compareUnsigned((byte[]) left, (byte[]) right);
        }
    }

    /** The rows of a task that are stored. Each is the same object with other contents. */
    private class Stored implements Iterator {
        private final int task;
        private final Iterator rows;
        private final Object[] hashes = new Object[3];
        private final JoinedRow joined = new JoinedRow();
        private final InternalRow beside = new GenericInternalRow(hashes);
        private InternalRow next;

        private final Map blocks = new HashMap();
        private UTF8String topic;
        private int incarnation;
        private int partition;
        private long block;
        private long seed;
        private long[] sums;
        private final Written written = new Written();
        private final List dead = new ArrayList();
        private long bytes;
        private final Map timesOfNames = new HashMap();
        private long withNames;
        private boolean reported;

        Stored(int task, Iterator rows) {
            this.task = task;
            this.rows = rows;
        }

        public boolean hasNext() {
            while (next == null && rows.hasNext()) {
                InternalRow row = (InternalRow) rows.next();
                if (isStored(row)) {
                    next = row;
                }
            }
            if (next == null && !reported) {
                report();
                // This may be asked for the end again.
                reported = true;
            }
            return next != null;
        }

        public Object next() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            InternalRow row = next;
            next = null;
            return joined.apply(row, beside);
        }

        private boolean isStored(InternalRow row) {
            long offset = row.getLong(OFFSET);
            find(row, offset / size);
            long hash = XXH64.hashLong(offset, seed);
            int outcome = row.getByte(OUTCOME);
            sums[2 * outcome]++;
            sums[2 * outcome + 1] ^= hash;
            if (names >= 0 && !row.isNullAt(names)) {
                countNames(row.getArray(names));
            }
            if (outcome != STORED) {
                if (outcome != SKIPPED) {
                    keep((UnsafeRow) row);
                }
                return false;
            }
            // A message's only row has index 0.
            long ofRow = XXH64.hashInt(0, hash);
            long digest = digest(row, ofRow);
            sums[ROWS] ^= ofRow;
            sums[CONTENT] ^= digest;
            hashes[0] = Long.valueOf(hash);
            hashes[1] = Long.valueOf(ofRow);
            hashes[2] = Long.valueOf(digest);
            return true;
        }

        private void countNames(ArrayData found) {
            withNames++;
            for (int i = 0; i < found.numElements(); i++) {
                UTF8String name = found.getUTF8String(i);
                long[] times = (long[]) timesOfNames.get(name);
                if (times == null) {
                    if (timesOfNames.size() == MAX_NAMES) {
                        continue;
                    }
                    times = new long[1];
                    timesOfNames.put(name.copy(), times);
                }
                times[0]++;
            }
        }

        private void find(InternalRow row, long number) {
            UTF8String name = row.getUTF8String(TOPIC);
            if (sums != null && number == block && row.getInt(PARTITION) == partition && name.equals(topic)) {
                return;
            }
            topic = name.copy();
            incarnation = row.getInt(INCARNATION);
            partition = row.getInt(PARTITION);
            block = number;
            seed = XXH64.hashInt(partition, XXH64.hashInt(incarnation, hash(topic, SPARK_SEED)));
            String place = topic + " " + incarnation + " " + partition + " " + block;
            sums = (long[]) blocks.get(place);
            if (sums == null) {
                sums = new long[CONTENT + 1];
                blocks.put(place, sums);
            }
        }

        private long digest(InternalRow row, long ofRow) {
            long hash = ofRow;
            for (int start = 0; start < kinds.length; start += NULL_BITS) {
                long nulls = 0;
                for (int field = start; field < kinds.length && field < start + NULL_BITS; field++) {
                    if (row.isNullAt(FIELDS + field)) {
                        nulls |= 1L << (field - start);
                    }
                }
                hash = XXH64.hashLong(nulls, hash);
            }
            for (int field = 0; field < kinds.length; field++) {
                int at = FIELDS + field;
                if (row.isNullAt(at)) {
                    continue;
                }
                switch (kinds[field]) {
                    case 's':
                        // Bytes are laid out as text is.
                        hash = hash(row.getUTF8String(at), hash);
                        break;
                    case 'l':
                        hash = XXH64.hashLong(row.getLong(at), hash);
                        break;
                    case 'd':
                        hash = hash(row.getDouble(at), hash);
                        break;
                    case 'b':
                        hash = XXH64.hashInt(row.getBoolean(at) ? 1 : 0, hash);
                        break;
                    case 'i':
                        hash = XXH64.hashLong(row.getInt(at), hash);
                        break;
                    case 'h':
                        hash = XXH64.hashLong(row.getShort(at), hash);
                        break;
                    case 'y':
                        hash = XXH64.hashLong(row.getByte(at), hash);
                        break;
                    case 'f':
                        hash = hash((double) row.getFloat(at), hash);
                        break;
                    case 'm':
                        DecimalType decimal = (DecimalType) types[field];
                        byte[] digits = unscaled(row.getDecimal(at, decimal.precision(), decimal.scale()));
                        hash = hash(digits, digits.length, hash);
                        break;
                    default:
                        written.length = 0;
                        canonical(row, at, types[field], written);
                        hash = hash(written.bytes, written.length, hash);
                }
            }
            return hash;
        }

        private void keep(UnsafeRow row) {
            int reason = FIELDS + kinds.length + 1;
            if (!never.isEmpty() && !row.isNullAt(reason) && row.getUTF8String(reason).toString().endsWith(never)) {
                throw new IllegalStateException("tidemark: " + row.getUTF8String(reason));
            }
            bytes += row.getSizeInBytes();
            if (bytes > mostBytes) {
                dead.clear();
                return;
            }
            dead.add(row.copy());
        }

        private void report() {
            for (Iterator each = blocks.entrySet().iterator(); each.hasNext();) {
                Map.Entry one = (Map.Entry) each.next();
                StringBuilder line = new StringBuilder().append(one.getKey());
                long[] found = (long[]) one.getValue();
                for (int i = 0; i < found.length; i++) {
                    line.append(' ').append(found[i]);
                }
                counted.add(line.toString());
            }
            deadBytes.add(bytes);
            if (withNames > 0) {
                unknown.add(withNames + " ");
                for (Iterator each = timesOfNames.entrySet().iterator(); each.hasNext(); ) {
                    Map.Entry one = (Map.Entry) each.next();
                    byte[] name = ((UTF8String) one.getKey()).getBytes();
                    unknown.add(((long[]) one.getValue())[0] + " " + HexFormat.of().formatHex(name));
                }
            }
            // The attempt of a task that was given up puts nothing that would stay.
            if (bytes <= mostBytes && !TaskContext.get().isInterrupted()) {
                SparkEnv.get().blockManager().putIterator(
                    new RDDBlockId(held, task),
                    CollectionConverters.asScala(dead.iterator()),
                    StorageLevel.MEMORY_AND_DISK_SER(),
                    true,
                    ClassTag$.MODULE$.apply(InternalRow.class)
                );
            }
            dead.clear();
        }

        public void remove() {
            throw new UnsupportedOperationException();
        }
    }
}
