"""`./run bench`: Tidemark against other ways to do the same, in pairs, on the servers of this site. Prints JSON."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import sys
from typing import Any

from bench import report
from bench.measures import MEASURES, Measure
from bench.workbench import Workbench
from services import control, environment, jars
from services.site import Site
from tidemark.spark.runtime.session import open_session


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__)
    names = [one.name for one in MEASURES]
    parser.add_argument("measures", nargs="*", choices=[[], *names], metavar="MEASURE", help=", ".join(names))
    parser.add_argument("--messages", type=int, default=1_000_000, help="in a window (1000000)")
    parser.add_argument("--pairs", type=int, default=5, help="how many times each side is measured (5)")
    parser.add_argument("--write", action="store_true", help="put the results into docs/benchmarks.json and its page")
    options = parser.parse_args()
    site = Site.from_environment()
    jars.fetch(site.jars)
    control.up(site, control.DATA_SERVERS, report=_say)
    os.environ.update({**environment.connections(site), **environment.spark(site)})
    os.environ["PYSPARK_SUBMIT_ARGS"] = "--master local[2] --driver-memory 2g pyspark-shell"
    spark = open_session("bench")
    bench = Workbench(site, spark, options.messages, options.pairs)
    results = {}
    try:
        for measure in MEASURES:
            if not options.measures or measure.name in options.measures:
                _say(f"{measure.name}: {measure.what}")
                results[measure.name] = _result(measure, bench)
                _say(f"  {results[measure.name]['ratio']}, target {measure.target}")
                if options.write:
                    report.write(results, names)
    finally:
        bench.close()
        spark.stop()
    print(json.dumps(results, indent=1))
    return 0


def _result(measure: Measure, bench: Workbench) -> dict[str, Any]:
    pairs = measure.run(bench)
    ratio = pairs.ratios(speed=measure.speed)
    return {
        "what": measure.what,
        "interval": measure.interval,
        "messages": bench.messages if measure.messages is None else measure.messages,
        "pairs": len(pairs.ours),
        "ours": [round(one, 2) for one in pairs.ours],
        "other": [round(one, 2) for one in pairs.other],
        "ratio": ratio,
        "speed": measure.speed,
        "target": measure.target,
        "met": measure.met(ratio["median"]),
        "day": dt.datetime.now(dt.UTC).date().isoformat(),
    }


def _say(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
