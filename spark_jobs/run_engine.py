"""spark-submit starts this: a warm engine, which works through the runs of many streams."""

from tidemark_spark.engine import starting

if __name__ == "__main__":
    starting.main()
