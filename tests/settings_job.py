"""spark-submit starts this: it says, as the last line, with which settings a job's session runs. For tests."""

from __future__ import annotations

import json
import sys

from tidemark_spark.session import open_session

if __name__ == "__main__":
    spark = open_session("settings")
    print(json.dumps({name: spark.conf.get(name) for name in sys.argv[1:]}))
    spark.stop()
