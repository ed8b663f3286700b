package tidemark;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.Appender;
import org.apache.logging.log4j.core.Filter;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.appender.AbstractAppender;
import org.apache.logging.log4j.core.config.Configuration;
import org.apache.logging.log4j.core.config.LoggerConfig;
import org.apache.logging.log4j.core.config.Property;
import org.apache.logging.log4j.core.impl.Log4jLogEvent;
import org.apache.logging.log4j.message.SimpleMessage;

/**
 * Leaves out of Spark's log what errors say that may be the words of a message: see masking.py.
 *
 * An error is logged by its classes, and by the places in code where it was thrown.
 *
 * Janino compiles this: Java 8, without generics and lambdas.
 */
public class MaskedLog implements Runnable, Serializable {
    private static final long serialVersionUID = 1;
    private static final String BEFORE = "masked ";
    private static final String SPARKS = "org.apache.spark.";
    private static final String OF_SPARK = "org.apache.spark.SparkException: ";
    private static final int MAX_PLACES = 12;
    private static final int MAX_CAUSES = 20;

    private final String error;
    private final String[] shown;
    private final String[] shownOfAny;
    private final String expressions;
    private final String[] calledByAll;
    private final String leftOut;

    /**
     * `error`: the pattern of an error's name; `shown`: how names begin whose text is shown, a line each;
     * `shownOfAny`: those of them whose text is shown whatever threw them. `expressions`, `calledByAll`: see own_errors.py.
     */
    public MaskedLog(
            String error, String shown, String shownOfAny, String expressions, String calledByAll, String leftOut) {
        this.error = error;
        this.shown = shown.split("\n");
        this.shownOfAny = shownOfAny.split("\n");
        this.expressions = expressions;
        this.calledByAll = calledByAll.split("\n");
        this.leftOut = leftOut;
    }

    /** Mask what this JVM logs from now on. */
    public void run() {
        Object found = LogManager.getContext(false);
        if (!(found instanceof LoggerContext)) {
            return;
        }
        LoggerContext context = (LoggerContext) found;
        // Several class loaders of one JVM may have this class.
        synchronized (context) {
            Configuration configuration = context.getConfiguration();
            Iterator loggers = configuration.getLoggers().values().iterator();
            while (loggers.hasNext()) {
                LoggerConfig logger = (LoggerConfig) loggers.next();
                Iterator appenders = new ArrayList(logger.getAppenders().values()).iterator();
                while (appenders.hasNext()) {
                    Appender appender = (Appender) appenders.next();
                    if (appender.getName().startsWith(BEFORE)) {
                        continue;
                    }
                    Masking masking = new Masking(appender);
                    masking.start();
                    logger.removeAppender(appender.getName());
                    logger.addAppender(masking, (Level) null, (Filter) null);
                }
            }
            context.updateLoggers();
        }
    }

    String masked(String text, String[] shown) {
        Matcher found = Pattern.compile(error).matcher(text);
        while (found.find()) {
            String rest = text.substring(found.start());
            if (!isShown(rest, shown)) {
                boolean more = text.substring(found.end()).trim().length() > 0;
                String name = text.substring(0, found.end()).replaceFirst(": ?$", "");
                return more ? name + " " + leftOut : name;
            }
        }
        return text;
    }

    private boolean isShown(String text, String[] shown) {
        return text.startsWith(OF_SPARK) && !text.startsWith(OF_SPARK + "[") || beginsWith(text, shown);
    }

    private static boolean beginsWith(String text, String[] some) {
        for (int i = 0; i < some.length; i++) {
            if (text.startsWith(some[i])) {
                return true;
            }
        }
        return false;
    }

    /** Whether one of Spark's expressions threw an error, or a cause of it: then its text may be a message's. */
    private boolean isOwn(Throwable thrown) {
        Throwable one = thrown;
        for (int cause = 0; one != null && cause < MAX_CAUSES; cause++) {
            StackTraceElement[] places = one.getStackTrace();
            for (int i = 0; i < places.length; i++) {
                String name = places[i].getClassName();
                if (name.startsWith(expressions)) {
                    return true;
                }
                if (name.startsWith(SPARKS) && !beginsWith(name, calledByAll)) {
                    break;
                }
            }
            one = one.getCause();
        }
        return false;
    }

    private String described(Throwable thrown) {
        StringBuilder said = new StringBuilder();
        String[] ofThis = isOwn(thrown) ? shownOfAny : shown;
        Throwable one = thrown;
        for (int cause = 0; one != null && cause < MAX_CAUSES; cause++) {
            said.append(cause == 0 ? "\n" : "\nCaused by: ").append(masked(String.valueOf(one), ofThis));
            StackTraceElement[] places = one.getStackTrace();
            for (int i = 0; i < places.length && i < MAX_PLACES; i++) {
                said.append("\n\tat ").append(places[i]);
            }
            one = one.getCause();
        }
        return said.toString();
    }

    private class Masking extends AbstractAppender {
        private final Appender appender;

        Masking(Appender appender) {
            super(BEFORE + appender.getName(), (Filter) null, appender.getLayout(), true, Property.EMPTY_ARRAY);
            this.appender = appender;
        }

        public void append(LogEvent event) {
            String text = String.valueOf(event.getMessage().getFormattedMessage());
            // A text says nothing that is certain of what threw an error: a message may have made it up.
            String said = masked(text, shownOfAny);
            Throwable thrown = event.getThrown();
            if (thrown == null && said.equals(text)) {
                appender.append(event);
                return;
            }
            Log4jLogEvent.Builder builder = new Log4jLogEvent.Builder(event);
            builder.setMessage(new SimpleMessage(thrown == null ? said : said + described(thrown)));
            builder.setThrown((Throwable) null);
            builder.setThrownProxy(null);
            appender.append(builder.build());
        }
    }
}
