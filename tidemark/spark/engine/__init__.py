"""A warm engine: one Spark application that works through the runs of many streams, each in a process of its own."""
