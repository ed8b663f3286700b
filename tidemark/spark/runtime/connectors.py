"""The jars on Spark's class path besides Spark's own: the Kafka connector with its parts, and Spark's Avro package.

Without them, Spark fails in the middle of the work, in the words of a compiler or of a server that does not answer.
"""

from __future__ import annotations

import re
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tidemark.clients.on_one_machine import connector
from tidemark.errors import WrongUse

# A class of each jar.
_KAFKA = (
    ("org.apache.spark.sql.kafka010.KafkaSourceProvider", "Spark's Kafka connector"),
    ("org.apache.spark.kafka010.KafkaTokenUtil", "the connector's token provider"),
    ("org.apache.kafka.clients.consumer.KafkaConsumer", "Kafka's client"),
    ("org.apache.commons.pool2.impl.GenericKeyedObjectPool", "commons-pool2, which keeps Kafka's consumers"),
)
_AVRO = ("org.apache.spark.sql.avro.AvroDataToCatalyst", "Spark's Avro package")
# The name that each of Spark's own packages has on an index ends so.
_VERSION = re.compile(r"(spark-[a-z0-9-]+_[\d.]+)-(\d+\.\d+)\.[^/]*\.jar$")


def check_connectors(spark: SparkSession, *, avro: bool) -> None:
    """Look for the packages, and compare their versions with Spark's. Raises WrongUse, saying how to add them."""
    jvm: Any = spark.sparkContext._jvm
    loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    for name, what in (*_KAFKA, *((_AVRO,) if avro else ())):
        try:
            class_ = jvm.java.lang.Class.forName(name, False, loader)
        except Py4JJavaError as problem:
            raise WrongUse(f"Spark's class path lacks {what} ({name}). {_remedy(spark, avro=avro)}") from problem
        source = class_.getProtectionDomain().getCodeSource()
        jar = _VERSION.search("" if source is None else str(source.getLocation()))
        if jar is not None and not spark.version.startswith(f"{jar[2]}."):
            raise WrongUse(
                f"Spark {spark.version} has {jar[1]} of version {jar[2]} on its class path, whose classes do not fit. "
                f"{_remedy(spark, avro=avro)}"
            )


def _remedy(spark: SparkSession, *, avro: bool) -> str:
    return (
        "Name the packages in spark-defaults.conf, or under engine.conf in the stream file: spark.jars.packages = "
        + connector(spark.version, avro=avro)
    )
