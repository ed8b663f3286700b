package tidemark;

import java.sql.Timestamp;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.spark.api.java.function.Function;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;

/**
 * A record of Kafka as a row of Spark's Kafka source, with the time in ms since 1970 if Spark cannot hold it.
 *
 * Janino compiles this: Java 8, without generics and lambdas.
 */
public class AnyTime implements Function {
    private static final long serialVersionUID = 1;

    public Object call(Object given) {
        ConsumerRecord record = (ConsumerRecord) given;
        Timestamp time = new Timestamp(record.timestamp());
        Object[] fields = {
            record.key(), record.value(), record.topic(), record.partition(), record.offset(), time,
            record.timestampType().id, headers(record), null
        };
        try {
            DateTimeUtils.fromJavaTimestamp(time);
        } catch (ArithmeticException problem) {
            fields[5] = null;
            fields[8] = record.timestamp();
        }
        return RowFactory.create(fields);
    }

    private static Object headers(ConsumerRecord record) {
        List found = new ArrayList();
        for (Iterator each = record.headers().iterator(); each.hasNext();) {
            Header header = (Header) each.next();
            found.add(RowFactory.create(new Object[] {header.key(), header.value()}));
        }
        return found.isEmpty() ? null : found.toArray();
    }
}
