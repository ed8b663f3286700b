package tidemark;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.sparkproject.spark_core.protobuf.ByteString;
import org.sparkproject.spark_core.protobuf.DescriptorProtos;
import org.sparkproject.spark_core.protobuf.Descriptors;
import org.sparkproject.spark_core.protobuf.DynamicMessage;
import org.sparkproject.spark_core.protobuf.InvalidProtocolBufferException;
import org.sparkproject.spark_core.protobuf.Message;
import org.sparkproject.spark_core.protobuf.MessageLite;
import org.sparkproject.spark_core.protobuf.UnknownFieldSet;

/**
 * Messages of Protocol Buffers as rows, read by Google's library for Java, which Spark's core brings.
 *
 * Gives a row of why there are no fields, and of the fields, of which one is null. The driver has compared the types of the
 * fields with the schema (tidemark/schemes/protobuf_schema.py); values that do not fit are found here.
 *
 * `fields` is their struct, as Spark's JSON of a type. `schemas` are sets of files in base64, by the number that values begin
 * with, or with the number "" if they begin with none; `problems` says what is wrong with others. In a set, the last file is
 * the one that message indexes count in. `name` is the full name of the message.
 *
 * Janino compiles this: Java 8, without generics and lambdas.
 */
public class Protobuf implements UDF1 {
    private static final long serialVersionUID = 1;
    // A byte 0 and the number of a schema.
    private static final int FRAME = 5;
    private static final String NOT_FRAMED = "not in the wire format of a schema registry";
    private static final String GOOGLE = "google.protobuf.";
    // The times of the years 1 to 9999, as Google's own type has them.
    private static final long FIRST_SECOND = -62135596800L;
    private static final long LAST_SECOND = 253402300799L;
    // As many messages within messages as Google's library reads.
    private static final int DEEPEST = 100;
    // Every integer up to here is a double of its own.
    private static final double MAX_EXACT = 9007199254740992.0;

    private final StructType fields;
    private final String name;
    private final int most;
    private final HashMap schemas;
    private final HashMap problems;
    // Descriptors by the number of a schema: they cannot be sent to the executors.
    private transient HashMap read;

    public Protobuf(String fields, String name, Integer most, List numbers, List sets, List wrong, List why) {
        this.fields = (StructType) DataType.fromJson(fields);
        this.name = name;
        this.most = most.intValue();
        this.schemas = zipped(numbers, sets);
        this.problems = zipped(wrong, why);
    }

    private static HashMap zipped(List keys, List values) {
        HashMap found = new HashMap();
        for (int i = 0; i < keys.size(); i++) {
            found.put(keys.get(i), values.get(i));
        }
        return found;
    }

    public Object call(Object given) {
        if (given == null) {
            return null;
        }
        byte[] bytes = (byte[]) given;
        try {
            if (bytes.length > most) {
                throw new Invalid("more than " + most + " bytes");
            }
            return RowFactory.create(new Object[] {null, row(message(bytes), fields, "")});
        } catch (Invalid problem) {
            return RowFactory.create(new Object[] {problem.getMessage(), null});
        }
    }

    private DynamicMessage message(byte[] bytes) throws Invalid {
        String number = "";
        int at = 0;
        if (!schemas.containsKey("") && !problems.containsKey("")) {
            if (bytes.length < FRAME || bytes[0] != 0) {
                throw new Invalid(NOT_FRAMED);
            }
            number = Long.toString(ByteBuffer.wrap(bytes).getInt(1) & 0xffffffffL);
            at = FRAME;
        }
        if (problems.containsKey(number)) {
            throw new Invalid("schema" + (at == 0 ? "" : " " + number) + ": " + problems.get(number));
        }
        if (!schemas.containsKey(number)) {
            throw new Invalid("schema " + number + " is not a Protobuf schema of the registry");
        }
        Object[] found = descriptors(number);
        if (at > 0) {
            at = behindIndexes(bytes, at, (Descriptors.FileDescriptor) found[1]);
        }
        Descriptors.Descriptor kind = (Descriptors.Descriptor) found[0];
        DynamicMessage.Builder builder = DynamicMessage.newBuilder(kind);
        try {
            // By the interface: the class has this method with several types of results, among which Janino finds one by chance.
            ((MessageLite.Builder) builder).mergeFrom(ByteString.copyFrom(bytes, at, bytes.length - at));
        } catch (InvalidProtocolBufferException problem) {
            String text = notUtf8(kind, ByteString.copyFrom(bytes, at, bytes.length - at), "", 0);
            throw new Invalid(text == null ? "not a message " + name : text + " is not UTF-8");
        }
        if (!builder.isInitialized()) {
            String missing = (String) builder.findInitializationErrors().get(0);
            throw new Invalid(missing.replaceAll("\\[[0-9]*\\]", "[]") + " is missing");
        }
        return builder.buildPartial();
    }

    /** The first text in the bytes of a message that is not UTF-8; null if all are, or the bytes are no message. */
    private static String notUtf8(Descriptors.Descriptor kind, ByteString bytes, String path, int depth) {
        UnknownFieldSet found;
        try {
            found = UnknownFieldSet.parseFrom(bytes);
        } catch (InvalidProtocolBufferException problem) {
            return null;
        }
        List fields = kind.getFields();
        for (int i = 0; i < fields.size(); i++) {
            Descriptors.FieldDescriptor field = (Descriptors.FieldDescriptor) fields.get(i);
            // An entry of a map is a message of `key` and `value`.
            boolean entry = kind.getOptions().getMapEntry();
            String at = entry ? path : path + (path.isEmpty() ? "" : ".") + field.getName() + (field.isRepeated() ? "[]" : "");
            List given = found.getField(field.getNumber()).getLengthDelimitedList();
            for (int j = 0; j < given.size(); j++) {
                ByteString one = (ByteString) given.get(j);
                if (field.getType() == Descriptors.FieldDescriptor.Type.STRING && !one.isValidUtf8()) {
                    return at;
                }
                if (field.getType() == Descriptors.FieldDescriptor.Type.MESSAGE && depth < DEEPEST) {
                    String inner = notUtf8(field.getMessageType(), one, at, depth + 1);
                    if (inner != null) {
                        return inner;
                    }
                }
            }
        }
        return null;
    }

    /** Where the message begins behind the indexes that say which message of the file it is. */
    private int behindIndexes(byte[] bytes, int at, Descriptors.FileDescriptor file) throws Invalid {
        int[] next = {at};
        int count = index(bytes, next);
        List of = file.getMessageTypes();
        Descriptors.Descriptor found = null;
        // No index stands for one index of 0.
        for (int i = 0; i < Math.max(count, 1); i++) {
            int one = count == 0 ? 0 : index(bytes, next);
            if (one >= of.size()) {
                throw new Invalid("it has the index of a message that its schema does not have");
            }
            found = (Descriptors.Descriptor) of.get(one);
            of = found.getNestedTypes();
        }
        if (!found.getFullName().equals(name)) {
            throw new Invalid("a message " + found.getFullName() + ", and not " + name);
        }
        return next[0];
    }

    /** A number in as many bytes as it needs, seven bits in each, its sign in the lowest bit. */
    private static int index(byte[] bytes, int[] at) throws Invalid {
        int found = 0;
        for (int shift = 0; shift < 28; shift += 7) {
            if (at[0] >= bytes.length) {
                break;
            }
            int part = bytes[at[0]++];
            found |= (part & 0x7f) << shift;
            if (part >= 0) {
                if ((found & 1) == 1) {
                    break;
                }
                return found >> 1;
            }
        }
        throw new Invalid(NOT_FRAMED);
    }

    /** The message in a schema, and the schema's own file. */
    private Object[] descriptors(String number) {
        if (read == null) {
            read = new HashMap();
        }
        if (!read.containsKey(number)) {
            read.put(number, built((String) schemas.get(number)));
        }
        return (Object[]) read.get(number);
    }

    private Object[] built(String text) {
        try {
            DescriptorProtos.FileDescriptorSet set =
                DescriptorProtos.FileDescriptorSet.parseFrom(Base64.getDecoder().decode(text));
            HashMap files = new HashMap();
            Descriptors.FileDescriptor last = null;
            Object found = null;
            for (int i = 0; i < set.getFileCount(); i++) {
                DescriptorProtos.FileDescriptorProto file = set.getFile(i);
                Descriptors.FileDescriptor[] imports = new Descriptors.FileDescriptor[file.getDependencyCount()];
                for (int j = 0; j < imports.length; j++) {
                    imports[j] = (Descriptors.FileDescriptor) files.get(file.getDependency(j));
                }
                last = Descriptors.FileDescriptor.buildFrom(file, imports);
                files.put(file.getName(), last);
                found = found == null ? named(last.getMessageTypes()) : found;
            }
            return new Object[] {found, last};
        } catch (InvalidProtocolBufferException problem) {
            throw new IllegalArgumentException(problem);
        } catch (Descriptors.DescriptorValidationException problem) {
            throw new IllegalArgumentException(problem);
        }
    }

    private Object named(List kinds) {
        Object found = null;
        for (int i = 0; i < kinds.size() && found == null; i++) {
            Descriptors.Descriptor kind = (Descriptors.Descriptor) kinds.get(i);
            found = kind.getFullName().equals(name) ? kind : named(kind.getNestedTypes());
        }
        return found;
    }

    private static Row row(Message message, StructType of, String path) throws Invalid {
        StructField[] members = of.fields();
        Object[] values = new Object[members.length];
        for (int i = 0; i < members.length; i++) {
            Descriptors.FieldDescriptor field = message.getDescriptorForType().findFieldByName(members[i].name());
            // A field that this version of the message does not have is null.
            values[i] = field == null ? null : of(message, field, members[i].dataType(), path + members[i].name());
        }
        return RowFactory.create(values);
    }

    private static Object of(Message message, Descriptors.FieldDescriptor field, DataType kind, String path) throws Invalid {
        if (field.isMapField()) {
            return map((List) message.getField(field), (MapType) kind, path);
        }
        if (field.isRepeated()) {
            List given = (List) message.getField(field);
            ArrayList found = new ArrayList(given.size());
            for (int i = 0; i < given.size(); i++) {
                found.add(value(given.get(i), field, ((ArrayType) kind).elementType(), path + "[]"));
            }
            return found;
        }
        if (field.hasPresence() && !message.hasField(field) && !field.hasDefaultValue()) {
            return null;
        }
        return value(message.getField(field), field, kind, path);
    }

    private static Map map(List entries, MapType kind, String path) throws Invalid {
        LinkedHashMap found = new LinkedHashMap();
        for (int i = 0; i < entries.size(); i++) {
            Message entry = (Message) entries.get(i);
            Descriptors.Descriptor of = entry.getDescriptorForType();
            Descriptors.FieldDescriptor field = of.findFieldByNumber(2);
            Object key = entry.getField(of.findFieldByNumber(1));
            // Of entries with one key the last counts, as in all of Google's libraries.
            found.put(
                isUnsigned(of.findFieldByNumber(1)) ? digits(key).toString() : key.toString(),
                value(entry.getField(field), field, kind.valueType(), path + "[]")
            );
        }
        return found;
    }

    private static Object value(Object given, Descriptors.FieldDescriptor field, DataType kind, String path) throws Invalid {
        if (given instanceof Message) {
            return message((Message) given, kind, path);
        }
        if (given instanceof Descriptors.EnumValueDescriptor) {
            Descriptors.EnumValueDescriptor one = (Descriptors.EnumValueDescriptor) given;
            // A number that the schema has no name for stands for itself.
            Object text = field.getEnumType().findValueByNumber(one.getNumber()) == null
                ? Integer.toString(one.getNumber())
                : one.getName();
            return kind instanceof StringType ? text : number(BigInteger.valueOf(one.getNumber()), kind, path);
        }
        if (given instanceof ByteString) {
            return ((ByteString) given).toByteArray();
        }
        if (given instanceof Integer || given instanceof Long) {
            return number(isUnsigned(field) ? digits(given) : BigInteger.valueOf(((Number) given).longValue()), kind, path);
        }
        if (given instanceof Float && kind.typeName().equals("double")) {
            return new Double(((Float) given).doubleValue());
        }
        return given;
    }

    private static boolean isUnsigned(Descriptors.FieldDescriptor field) {
        Descriptors.FieldDescriptor.Type of = field.getType();
        return of == Descriptors.FieldDescriptor.Type.UINT32
            || of == Descriptors.FieldDescriptor.Type.FIXED32
            || of == Descriptors.FieldDescriptor.Type.UINT64
            || of == Descriptors.FieldDescriptor.Type.FIXED64;
    }

    /** The value of an unsigned number, which Java has as a signed one. */
    private static BigInteger digits(Object given) {
        return new BigInteger(
            given instanceof Integer
                ? Integer.toUnsignedString(((Integer) given).intValue())
                : Long.toUnsignedString(((Long) given).longValue())
        );
    }

    private static Object number(BigInteger given, DataType kind, String path) throws Invalid {
        if (kind instanceof DecimalType) {
            return decimal(new BigDecimal(given), (DecimalType) kind, path);
        }
        if (given.bitLength() > 63) {
            throw new Invalid(path + " is not an integer of 64 bits");
        }
        if (kind instanceof LongType) {
            return new Long(given.longValue());
        }
        if (given.bitLength() > 31) {
            throw new Invalid(path + " is not an integer of 32 bits");
        }
        return new Integer(given.intValue());
    }

    private static BigDecimal decimal(BigDecimal given, DecimalType kind, String path) throws Invalid {
        try {
            BigDecimal found = given.setScale(kind.scale());
            if (found.precision() <= kind.precision()) {
                return found;
            }
        } catch (ArithmeticException digitsLost) {
            // Said below.
        }
        throw new Invalid(path + " is not decimal(" + kind.precision() + "," + kind.scale() + ")");
    }

    /** A message within the message: one of Google's own types as what it stands for, or its members. */
    private static Object message(Message given, DataType kind, String path) throws Invalid {
        if (kind instanceof StructType) {
            return row(given, (StructType) kind, path + ".");
        }
        Descriptors.Descriptor of = given.getDescriptorForType();
        String name = of.getFullName();
        if (name.equals(GOOGLE + "Timestamp") || name.equals(GOOGLE + "Duration")) {
            long seconds = ((Long) given.getField(of.findFieldByNumber(1))).longValue();
            int nanos = ((Integer) given.getField(of.findFieldByNumber(2))).intValue();
            if (kind instanceof DecimalType) {
                return decimal(BigDecimal.valueOf(seconds).add(BigDecimal.valueOf(nanos, 9)), (DecimalType) kind, path);
            }
            return instant(seconds, nanos, path);
        }
        if (kind instanceof StringType && isJson(name)) {
            StringBuilder out = new StringBuilder();
            json(given, out, path);
            return out.toString();
        }
        Descriptors.FieldDescriptor field = of.findFieldByNumber(1);
        return value(given.getField(field), field, kind, path);
    }

    private static Instant instant(long seconds, int nanos, String path) throws Invalid {
        if (seconds < FIRST_SECOND || seconds > LAST_SECOND || nanos < 0 || nanos > 999999999) {
            throw new Invalid(path + " is not a time");
        }
        if (nanos % 1000 != 0) {
            throw new Invalid(path + " has nanoseconds, which a timestamp does not hold");
        }
        return Instant.ofEpochSecond(seconds, nanos);
    }

    private static boolean isJson(String name) {
        return name.equals(GOOGLE + "Struct") || name.equals(GOOGLE + "Value") || name.equals(GOOGLE + "ListValue");
    }

    /** A Struct, a Value or a ListValue as compact JSON, with its keys by name. */
    private static void json(Message given, StringBuilder out, String path) throws Invalid {
        Descriptors.Descriptor of = given.getDescriptorForType();
        if (of.getName().equals("Value")) {
            Iterator all = given.getAllFields().entrySet().iterator();
            if (!all.hasNext()) {
                throw new Invalid(path + " has a Value without a kind");
            }
            Object one = ((Map.Entry) all.next()).getValue();
            if (one instanceof Message) {
                json((Message) one, out, path);
            } else if (one instanceof String) {
                quoted((String) one, out);
            } else if (one instanceof Double) {
                double number = ((Double) one).doubleValue();
                if (Double.isNaN(number) || Double.isInfinite(number)) {
                    throw new Invalid(path + " has a number that JSON lacks");
                }
                boolean negativeZero = number == 0 && 1 / number < 0;
                boolean whole = number == Math.rint(number) && Math.abs(number) < MAX_EXACT && !negativeZero;
                out.append(whole ? Long.toString((long) number) : Double.toString(number));
            } else {
                out.append(one instanceof Boolean ? one.toString() : "null");
            }
            return;
        }
        boolean list = of.getName().equals("ListValue");
        List parts = (List) given.getField(of.findFieldByNumber(1));
        TreeMap named = new TreeMap();
        out.append(list ? '[' : '{');
        for (int i = 0; i < parts.size(); i++) {
            Message part = (Message) parts.get(i);
            if (list) {
                out.append(i == 0 ? "" : ",");
                json(part, out, path);
            } else {
                Descriptors.Descriptor entry = part.getDescriptorForType();
                named.put(part.getField(entry.findFieldByNumber(1)), part.getField(entry.findFieldByNumber(2)));
            }
        }
        Iterator all = named.entrySet().iterator();
        for (int i = 0; all.hasNext(); i++) {
            Map.Entry one = (Map.Entry) all.next();
            out.append(i == 0 ? "" : ",");
            quoted((String) one.getKey(), out);
            out.append(':');
            json((Message) one.getValue(), out, path);
        }
        out.append(list ? ']' : '}');
    }

    private static void quoted(String text, StringBuilder out) {
        out.append('"');
        for (int i = 0; i < text.length(); i++) {
            char one = text.charAt(i);
            if (one == '"' || one == '\\') {
                out.append('\\').append(one);
            } else if (one < ' ') {
                out.append(String.format("\\u%04x", new Object[] {Integer.valueOf(one)}));
            } else {
                out.append(one);
            }
        }
        out.append('"');
    }

    /** Why a message is invalid. */
    private static class Invalid extends Exception {
        private static final long serialVersionUID = 1;

        Invalid(String why) {
            super(why, null, false, false);
        }
    }
}
