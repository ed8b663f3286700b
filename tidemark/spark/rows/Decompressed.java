package tidemark;

import com.github.luben.zstd.ZstdInputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.zip.GZIPInputStream;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.api.java.UDF1;
import org.xerial.snappy.Snappy;
import org.xerial.snappy.SnappyFramedInputStream;
import org.xerial.snappy.SnappyInputStream;

/**
 * Decompresses bytes, up to a most: some kilobytes can stand for gigabytes.
 *
 * Gives a row of the bytes and of why there are none, of which one is null. Janino compiles this: Java 8, without generics and
 * lambdas.
 */
public class Decompressed implements UDF1 {
    private static final long serialVersionUID = 1;
    // How the two streams of Snappy begin. What begins otherwise is one block.
    private static final byte[] XERIAL = {(byte) 0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0};
    private static final byte[] FRAMED = {(byte) 0xff, 6, 0, 0, 's', 'N', 'a', 'P', 'p', 'Y'};

    private final String how;
    private final int most;

    /** `how`: gzip, zstd or snappy. */
    public Decompressed(String how, Integer most) {
        this.how = how;
        this.most = most.intValue();
    }

    public Object call(Object given) {
        if (given == null) {
            return null;
        }
        byte[] bytes = (byte[]) given;
        byte[] found = null;
        boolean tooLong = false;
        try {
            // An empty value would be a stream of nothing to some of these.
            if (bytes.length > 0) {
                if (how.equals("snappy") && !begins(bytes, XERIAL) && !begins(bytes, FRAMED)) {
                    tooLong = Snappy.uncompressedLength(bytes) > most;
                    found = tooLong ? null : Snappy.uncompress(bytes);
                } else if (how.equals("snappy") && largestBlock(bytes) > most) {
                    tooLong = true;
                } else {
                    found = read(stream(new ByteArrayInputStream(bytes), bytes));
                    tooLong = found.length > most;
                }
            }
        } catch (IOException problem) {
            found = null;
        } catch (RuntimeException problem) {
            found = null;
        }
        if (tooLong) {
            return RowFactory.create(new Object[] {null, "more than " + most + " bytes when it is decompressed"});
        }
        return RowFactory.create(new Object[] {found, found == null ? "not " + how : null});
    }

    /**
     * The most that a block in a stream of Snappy becomes, by what the block says: its reader allocates that much before it
     * looks at the block. Throws where a block is longer than what is left.
     */
    private static int largestBlock(byte[] bytes) throws IOException {
        boolean framed = begins(bytes, FRAMED);
        int largest = 0;
        int at = 0;
        while (at < bytes.length) {
            if (!framed && begins(bytes, at, XERIAL)) {
                at += XERIAL.length + 8;
                continue;
            }
            int length = bytes.length - at < 4 ? -1 : framed ? little(bytes, at + 1) : big(bytes, at);
            at += 4;
            if (length < 0 || length > bytes.length - at) {
                throw new IOException("cut off");
            }
            // A compressed block of a frame, behind its checksum; other frames say nothing of what they become.
            int sum = framed ? 4 : 0;
            if (!framed || bytes[at - 4] == 0 && length >= sum) {
                int claimed = Snappy.uncompressedLength(bytes, at + sum, length - sum);
                largest = claimed < 0 ? Integer.MAX_VALUE : Math.max(largest, claimed);
            }
            at += length;
        }
        return largest;
    }

    private static int big(byte[] bytes, int at) {
        return bytes[at] << 24 | (bytes[at + 1] & 0xff) << 16 | (bytes[at + 2] & 0xff) << 8 | bytes[at + 3] & 0xff;
    }

    /** A number of three bytes, the least of them first. */
    private static int little(byte[] bytes, int at) {
        return bytes[at] & 0xff | (bytes[at + 1] & 0xff) << 8 | (bytes[at + 2] & 0xff) << 16;
    }

    private InputStream stream(InputStream bytes, byte[] given) throws IOException {
        if (how.equals("gzip")) {
            return new GZIPInputStream(bytes);
        }
        if (how.equals("zstd")) {
            return new ZstdInputStream(bytes);
        }
        return begins(given, FRAMED) ? (InputStream) new SnappyFramedInputStream(bytes) : new SnappyInputStream(bytes);
    }

    /** All bytes of a stream, or more than the most. */
    private byte[] read(InputStream stream) throws IOException {
        ByteArrayOutputStream found = new ByteArrayOutputStream();
        byte[] part = new byte[65536];
        try {
            int length = stream.read(part);
            while (length >= 0 && found.size() <= most) {
                found.write(part, 0, length);
                length = stream.read(part);
            }
        } finally {
            stream.close();
        }
        return found.toByteArray();
    }

    private static boolean begins(byte[] bytes, byte[] with) {
        return begins(bytes, 0, with);
    }

    private static boolean begins(byte[] bytes, int at, byte[] with) {
        if (bytes.length - at < with.length) {
            return false;
        }
        for (int i = 0; i < with.length; i++) {
            if (bytes[at + i] != with[i]) {
                return false;
            }
        }
        return true;
    }
}
