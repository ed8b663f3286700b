"""spark-submit starts this: it uses Spark in most of the ways of our jobs, so that its classes are loaded."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F


def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


spark = SparkSession.builder.getOrCreate()
folder = tempfile.mkdtemp()
numbers = spark.range(0, 1000, 1, 2).selectExpr(
    "id", "cast(id as string) text", "id % 7 seventh", "array(id, id + 1) two", "struct(id, cast(id as double) x) both"
)
mapped = numbers.mapInArrow(same, numbers.schema).cache()
mapped.write.partitionBy("seventh").parquet(f"{folder}/a")
stored = spark.read.parquet(f"{folder}/a")
sums = stored.groupBy("seventh").agg(F.count("*"), F.sum("id"), F.max("text"), F.collect_list("id"))
sums.join(F.broadcast(numbers.select("seventh").distinct()), "seventh").orderBy("seventh").collect()
stored.join(numbers, "id", "full_outer").select(F.explode(numbers.two)).count()
spark.createDataFrame([(1, "a"), (2, None)], "id long, text string").join(stored, "id", "left").toArrow()
numbers.selectExpr("try_cast(text as date)", "from_json(text, 'a int')", "sha2(text, 256)", "xxhash64(id)").collect()
numbers.rdd.map(lambda row: row.id).sum()
stored.foreachPartition(lambda rows: None)
spark.stop()
shutil.rmtree(folder)
