package tidemark;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.SparkJobInfo;
import org.apache.spark.SparkStageInfo;
import org.apache.spark.SparkStatusTracker;
import org.apache.spark.api.python.PythonAccumulatorV2;
import org.apache.spark.api.python.PythonWorkerFactory;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.util.AccumulatorV2;
import py4j.ClientServer;

/**
 * The runs of an engine, in its JVM: each has a session and a gateway of its own. Nothing of a run is left after its end.
 *
 * Janino compiles this file: it knows no lambdas, and the types of Scala's collections are left out.
 */
public class Runs {
  private static final String POOL = "spark.scheduler.pool";
  private static final String GROUP = "spark.jobGroup.id";

  private final SparkContext context;
  private final Map running = new ConcurrentHashMap();
  private final Map kept = new ConcurrentHashMap();
  private final ConcurrentMap places = new ConcurrentHashMap();

  public Runs(SparkContext context) {
    this.context = context;
  }

  private static class Run {
    SparkSession session;
    ClientServer gateway;
    String folder;
  }

  /**
   * The port of a new gateway for a run. Whatever the run does through the gateway has the run's session, group and pool:
   * threads inherit them.
   */
  public int begin(String name, String pool, String secret, Map settings) throws Exception {
    Run run = new Run();
    // Not a session beside others: it would share what they keep in memory, and the names of their tables.
    run.session = new SparkSession(context, new HashMap(settings));
    run.session.sessionState();
    context.setLocalProperty(POOL, pool);
    context.setLocalProperty(GROUP, name);
    context.addJobTag(name);
    SparkSession.setActiveSession(run.session);
    run.gateway = gateway(secret);
    running.put(name, run);
    return run.gateway.getJavaServer().getListeningPort();
  }

  /** A gateway on loopback, at work. With this secret, a program can do anything in this JVM. */
  public ClientServer gateway(String secret) throws Exception {
    final ClientServer made = new ClientServer.ClientServerBuilder(this)
        .javaAddress(InetAddress.getLoopbackAddress()).javaPort(0).authToken(secret).autoStartJavaServer(false).build();
    // py4j's own thread for this would keep the JVM from ending. The threads of the run inherit from this one.
    Thread accepting = new Thread("gateway") {
      public void run() {
        made.startServer(false);
      }
    };
    accepting.setDaemon(true);
    accepting.start();
    while (made.getJavaServer().getListeningPort() < 0) {
      if (!accepting.isAlive()) {
        throw new IllegalStateException("the gateway of a run has not started");
      }
      Thread.sleep(1);
    }
    return made;
  }

  public SparkSession session(String name) {
    return of(name).session;
  }

  /** The folder that is removed when the run has ended. */
  public void folder(String name, String folder) {
    of(name).folder = folder;
  }

  private Run of(String name) {
    Run run = (Run) running.get(name);
    if (run == null) {
      throw new IllegalStateException("the run " + name + " has ended");
    }
    return run;
  }

  /** What was kept under a name by `keep`, for all runs; null if nothing was. */
  public Object kept(String name) {
    return kept.get(name);
  }

  public void keep(String name, Object value) {
    kept.put(name, value);
  }

  /**
   * Collects in the JVM what tasks add, until the run asks for it. With PySpark's own, Spark's scheduler waits for the run's
   * process at the end of each task, and with it all other runs.
   */
  private static class Counts extends PythonAccumulatorV2 {
    Counts() {
      super("none", 0, "none");
    }

    /** What is sent with tasks: there it only collects. */
    public PythonAccumulatorV2 copyAndReset() {
      return new PythonAccumulatorV2("none", 0, "none");
    }

    public synchronized void merge(AccumulatorV2 other) {
      List added = (List) other.value();
      for (int i = 0; i < added.size(); i++) {
        add(added.get(i));
      }
    }
  }

  public PythonAccumulatorV2 counts() {
    PythonAccumulatorV2 made = new Counts();
    context.register(made);
    return made;
  }

  /** What tasks have added, from the given number on, each with its length before it. */
  public byte[] added(PythonAccumulatorV2 counts, int from) throws Exception {
    List all = (List) counts.value();
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    DataOutputStream out = new DataOutputStream(bytes);
    for (int i = from; i < all.size(); i++) {
      byte[] one = (byte[]) all.get(i);
      out.writeInt(one.length);
      out.write(one);
    }
    out.flush();
    return bytes.toByteArray();
  }

  /**
   * Hadoop keeps each file system open for the whole JVM, with the settings of its first use. So a place has one digest of
   * settings. Gives the stream that has used the place with others, or null.
   */
  public String opened(String place, String digest, String stream) {
    String[] first = (String[]) places.putIfAbsent(place, new String[] {digest, stream});
    return first == null || first[0].equals(digest) ? null : first[1];
  }

  /** The stages that a run's jobs are at: number of the stage, tasks done, at work, and all, by spaces. */
  public List stages(String name) {
    SparkStatusTracker tracker = context.statusTracker();
    List found = new ArrayList();
    int[] jobs = tracker.getJobIdsForTag(name);
    for (int i = 0; i < jobs.length; i++) {
      if (!tracker.getJobInfo(jobs[i]).isDefined()) {
        continue;
      }
      int[] stages = ((SparkJobInfo) tracker.getJobInfo(jobs[i]).get()).stageIds();
      for (int j = 0; j < stages.length; j++) {
        if (!tracker.getStageInfo(stages[j]).isDefined()) {
          continue;
        }
        SparkStageInfo stage = (SparkStageInfo) tracker.getStageInfo(stages[j]).get();
        if (stage.numActiveTasks() > 0) {
          found.add(stages[j] + " " + stage.numCompletedTasks() + " " + stage.numActiveTasks() + " " + stage.numTasks());
        }
      }
    }
    return found;
  }

  /** Ends what a run may have left: jobs and later ones, its gateway with all objects, kept rows, workers, its folder. */
  public void end(String name, String workers) throws Exception {
    Run run = (Run) running.remove(name);
    if (run == null) {
      return;
    }
    context.cancelJobGroupAndFutureJobs(name);
    context.cancelJobsWithTag(name);
    run.gateway.shutdown();
    run.session.sharedState().cacheManager().clearCache();
    forget(run.session);
    endWorkers(workers, name);
    if (run.folder != null) {
      delete(new File(run.folder));
    }
  }

  /** Each session has a listener for Spark's page, which would stay. */
  private void forget(SparkSession session) throws Exception {
    Object status = session.sharedState().statusStore();
    Object listener = status.getClass().getMethod("listener", new Class[0]).invoke(status, new Object[0]);
    if (((scala.Option) listener).isDefined()) {
      context.removeSparkListener((org.apache.spark.scheduler.SparkListenerInterface) ((scala.Option) listener).get());
    }
    if (SparkSession.getDefaultSession().isDefined() && SparkSession.getDefaultSession().get() == session) {
      SparkSession.clearDefaultSession();
    }
  }

  /** Ends the Python workers whose environment has this value, in this JVM. */
  private static void endWorkers(String variable, String value) throws Exception {
    SparkEnv env = SparkEnv.get();
    Field field = SparkEnv.class.getDeclaredField("pythonWorkers");
    field.setAccessible(true);
    synchronized (env) {
      scala.collection.mutable.HashMap workers = (scala.collection.mutable.HashMap) field.get(env);
      List ended = new ArrayList();
      scala.collection.Iterator all = workers.iterator();
      while (all.hasNext()) {
        scala.Tuple2 one = (scala.Tuple2) all.next();
        Method variables = one._1().getClass().getMethod("envVars", new Class[0]);
        scala.collection.Map of = (scala.collection.Map) variables.invoke(one._1(), new Object[0]);
        if (of.contains(variable) && value.equals(of.apply(variable))) {
          ended.add(one);
        }
      }
      for (Iterator i = ended.iterator(); i.hasNext();) {
        scala.Tuple2 one = (scala.Tuple2) i.next();
        workers.remove(one._1());
        ((PythonWorkerFactory) one._2()).stop();
      }
    }
  }

  private static void delete(File file) {
    File[] files = file.listFiles();
    for (int i = 0; files != null && i < files.length; i++) {
      delete(files[i]);
    }
    file.delete();
  }
}
