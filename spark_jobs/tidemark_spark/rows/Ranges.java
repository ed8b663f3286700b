package tidemark;

import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.sql.kafka010.KafkaOffsetRange;

/**
 * Ranges for Spark's Kafka source from a text, since one call of Java for each of thousands takes longer than reading them.
 *
 * A line is a topic, a partition, the first offset and the one behind the last, with a space between each.
 *
 * Janino compiles this: Java 8, without generics and lambdas.
 */
public class Ranges {
    private final List ranges = new ArrayList();

    public Ranges(String text) {
        String[] lines = text.split("\n");
        for (int number = 0; number < lines.length; number++) {
            String[] words = lines[number].split(" ");
            ranges.add(new KafkaOffsetRange(
                new TopicPartition(words[0], Integer.parseInt(words[1])),
                Long.parseLong(words[2]),
                Long.parseLong(words[3]),
                scala.Option.apply(null)
            ));
        }
    }

    public List ranges() {
        return ranges;
    }
}
