"""Windows to Parquet, against Spark without Tidemark.

What Tidemark does besides: hashes and tallies, dead letters, reading the files back, Kafka's metadata before and after,
and the ledger in HBase.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from bench.pairs import Pairs, in_pairs
from bench.workbench import EXAMPLE, Workbench, window
from tidemark.runs.live.open_stream import open_stream
from tidemark.schemes.kinds import DelimitedScheme
from tidemark.spark.columns import COORDINATE, REASON
from tidemark.spark.schemes import parse

# A window of some seconds, of which the fixed costs are a part, and not most.
LINES = 2_000_000
_PARQUET = {"type": "parquet"}
_KINDS = ("string", "integer", "string", "double")


def parquet(bench: Workbench) -> Pairs:
    topic = bench.lines(LINES)

    def ours() -> float:
        return window(bench.stream(topic, _PARQUET))

    def alone() -> None:
        _parsed(bench.source(topic)).write.parquet(str(bench.folder()))

    return in_pairs(bench.pairs, ours, alone)


def wide(bench: Workbench, number: int) -> Pairs:
    """Lines of so many fields: texts, integers and doubles."""
    fields = {f"field{at}": _KINDS[at % len(_KINDS)] for at in range(number)}
    scheme = {"type": "delimited", "fields": fields}
    topic = bench.columns(bench.messages, fields)

    def ours() -> float:
        return window(bench.stream(topic, _PARQUET, scheme=scheme, checks=[]))

    def alone() -> None:
        parsed = parse(bench.source(topic), DelimitedScheme.model_validate(scheme))
        parsed.select(*COORDINATE, REASON, *fields).write.parquet(str(bench.folder()))

    return in_pairs(bench.pairs, ours, alone)


def structured_streaming(bench: Workbench) -> Pairs:
    topic = bench.lines(LINES)

    def ours() -> float:
        return window(bench.stream(topic, _PARQUET))

    def query() -> None:
        folder = str(bench.folder())
        (
            _parsed(bench.source(topic, stream=True))
            .writeStream.trigger(availableNow=True)
            .format("parquet")
            .option("checkpointLocation", f"{folder}_checkpoint")
            .start(folder)
            .awaitTermination()
        )

    return in_pairs(bench.pairs, ours, query)


def _parsed(messages: DataFrame) -> DataFrame:
    """All lines with their fields, and the reason of those that do not match.

    A filter on the reason would be pushed below the patterns, and match each line twice.
    """
    scheme = open_stream(EXAMPLE).stream.scheme
    return parse(messages, scheme).select(*COORDINATE, REASON, *(f"`{name}`" for name in scheme.fields))
