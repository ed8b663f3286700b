package tidemark;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.StringTokenizer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.kafka010.KafkaOffsetRange;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.util.CollectionAccumulator;

/**
 * Records of Kafka as rows: only those at the wanted offsets, and counted as they are read.
 *
 * A row has topic, incarnation, partition, offset, key, value, time in microseconds, type of the time, headers, and the time
 * in ms since 1970 if Spark cannot hold it.
 *
 * The ranges to read are a text, since one call of Java for each of thousands takes longer than reading them. A line is a
 * topic, its incarnation, a partition, the first offset and the one after the last, with a space between each. If not all
 * that is read is wanted, a file has these two offsets of each wanted range, ascending in each partition, as longs. Its lines
 * are a topic, a partition, and how many of these longs are of it, partition after partition.
 *
 * For each range that a task has read, `counted` gets a line: topic, incarnation, partition, number of messages, XOR of their
 * hashes, XOR of their source digests (as tidemark/offsets/hashing.py has both), bytes of keys and values, first and last
 * offset, how many came at or before the one before, and first and last time in ms (`-` without any that Spark can hold).
 *
 * Janino compiles this: Java 8, without generics and lambdas.
 */
public class Messages implements FlatMapFunction {
    private static final long serialVersionUID = 1;
    private static final long SPARK_SEED = 42;

    private final transient List ranges = new ArrayList();
    // What `wanted` gives, which each executor gets once, and not each task. Null if all that is read is wanted.
    private Broadcast shared;
    private final Map incarnations = new HashMap();
    private final CollectionAccumulator counted;
    // Keeps the words of messages out of the log of whichever JVM reads them.
    private final Runnable masksLog;

    public Messages(String toRead, CollectionAccumulator counted, Runnable masksLog) {
        this.counted = counted;
        this.masksLog = masksLog;
        String[] lines = toRead.split("\n");
        for (int number = 0; number < lines.length; number++) {
            String[] words = lines[number].split(" ");
            TopicPartition at = new TopicPartition(words[0], Integer.parseInt(words[2]));
            long first = Long.parseLong(words[3]);
            ranges.add(new KafkaOffsetRange(at, first, Long.parseLong(words[4]), scala.Option.apply(null)));
            incarnations.put(words[0], Integer.valueOf(words[1]));
        }
    }

    /** For Spark's reader of Kafka. */
    public List ranges() {
        return ranges;
    }

    /** What a file has, by topic and partition: {first, until, first, until, ...} */
    public Map wanted(String lines, String file) throws IOException {
        // Python has written it on this machine.
        LongBuffer left = ByteBuffer.wrap(Files.readAllBytes(Paths.get(file))).order(ByteOrder.nativeOrder()).asLongBuffer();
        Map found = new HashMap();
        StringTokenizer words = new StringTokenizer(lines);
        while (words.hasMoreTokens()) {
            String at = words.nextToken() + " " + words.nextToken();
            long[] bounds = new long[Integer.parseInt(words.nextToken())];
            left.get(bounds);
            found.put(at, bounds);
        }
        return found;
    }

    /** Gives the executors what `wanted` gives. */
    public void share(Broadcast wanted) {
        shared = wanted;
    }

    public Iterator call(Object records) {
        masksLog.run();
        return new Rows((Iterator) records);
    }

    private static long hash(byte[] bytes, long seed) {
        return XXH64.hashUnsafeBytes(bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length, seed);
    }

    /** The rows of one range. */
    private class Rows implements Iterator {
        private final Iterator records;
        private ConsumerRecord next;
        private long[] bounds;
        // In `bounds`: where the range begins in which the next record is, or the first one after it.
        private int place;

        private String topic;
        private UTF8String text;
        private Integer incarnation;
        private Integer partition;
        private long seed;
        private long number;
        private long ack;
        private long source;
        private long bytes;
        private long first;
        private long last;
        private long repeated;
        private long earliest = Long.MAX_VALUE;
        private long latest = Long.MIN_VALUE;

        Rows(Iterator records) {
            this.records = records;
        }

        public boolean hasNext() {
            while (next == null && records.hasNext()) {
                ConsumerRecord record = (ConsumerRecord) records.next();
                if (topic == null) {
                    begin(record);
                }
                if (isWanted(record.offset())) {
                    next = record;
                }
            }
            if (next == null) {
                report();
            }
            return next != null;
        }

        private void begin(ConsumerRecord record) {
            topic = record.topic();
            text = UTF8String.fromString(topic);
            partition = Integer.valueOf(record.partition());
            incarnation = (Integer) incarnations.get(topic);
            long ofTopic = hash(topic.getBytes(StandardCharsets.UTF_8), SPARK_SEED);
            seed = XXH64.hashInt(partition.intValue(), XXH64.hashInt(incarnation.intValue(), ofTopic));
            bounds = shared == null ? null : (long[]) ((Map) shared.value()).get(topic + " " + partition);
        }

        private boolean isWanted(long offset) {
            if (bounds == null) {
                return shared == null;
            }
            if (place > 0 && offset < bounds[place - 1]) {
                place = 0;
            }
            while (place < bounds.length && offset >= bounds[place + 1]) {
                place += 2;
            }
            return place < bounds.length && offset >= bounds[place];
        }

        private void report() {
            if (number == 0 || counted == null) {
                return;
            }
            boolean timed = earliest <= latest;
            counted.add(topic + " " + incarnation + " " + partition + " " + number + " " + ack + " " + source + " " + bytes + " "
                + first + " " + last + " " + repeated + " " + (timed ? earliest + " " + latest : "- -"));
            number = 0;
        }

        public Object next() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            ConsumerRecord record = next;
            next = null;
            byte[] key = (byte[]) record.key();
            byte[] value = (byte[]) record.value();
            Header[] headers = record.headers().toArray();
            long time = record.timestamp();
            boolean fits = Long.MIN_VALUE / 1000 <= time && time <= Long.MAX_VALUE / 1000;
            // Before Kafka 0.10 messages have no time: -1.
            boolean timed = fits && time != -1;
            if (counted != null) {
                count(record, key, value, headers, timed);
            }
            Object[] fields = new Object[10];
            fields[0] = text;
            fields[1] = incarnation;
            fields[2] = partition;
            fields[3] = Long.valueOf(record.offset());
            fields[4] = key;
            fields[5] = value;
            fields[6] = timed ? Long.valueOf(time * 1000) : null;
            fields[7] = Integer.valueOf(record.timestampType().id);
            fields[8] = headers.length == 0 ? null : listed(headers);
            fields[9] = fits ? null : Long.valueOf(time);
            return new GenericInternalRow(fields);
        }

        private void count(ConsumerRecord record, byte[] key, byte[] value, Header[] headers, boolean timed) {
            long offset = record.offset();
            if (number == 0) {
                first = offset;
            } else if (offset <= last) {
                repeated++;
            }
            last = Math.max(last, offset);
            number++;
            long hash = XXH64.hashLong(offset, seed);
            ack ^= hash;
            hash = sized(value, sized(key, hash));
            for (int i = 0; i < headers.length; i++) {
                // Else [a: b] would be [a: null, b: null].
                hash = headers[i].value() == null ? XXH64.hashInt(-1, hash) : hash;
                hash = hash(headers[i].key().getBytes(StandardCharsets.UTF_8), hash);
                hash = headers[i].value() == null ? hash : hash(headers[i].value(), hash);
            }
            source ^= hash;
            bytes += (key == null ? 0 : key.length) + (value == null ? 0 : value.length);
            if (timed) {
                earliest = Math.min(earliest, record.timestamp());
                latest = Math.max(latest, record.timestamp());
            }
        }

        private long sized(byte[] bytes, long seed) {
            long hash = XXH64.hashInt(bytes == null ? -1 : bytes.length, seed);
            return bytes == null ? hash : hash(bytes, hash);
        }

        private GenericArrayData listed(Header[] headers) {
            Object[] found = new Object[headers.length];
            for (int i = 0; i < headers.length; i++) {
                Object[] header = {UTF8String.fromString(headers[i].key()), headers[i].value()};
                found[i] = new GenericInternalRow(header);
            }
            return new GenericArrayData(found);
        }

        public void remove() {
            throw new UnsupportedOperationException();
        }
    }
}
