"""spark-submit starts this: it says, as the last line, with which settings a job's session runs. For tests.

Settings of file systems, in FILES, are asked for in Spark's executors, and in the list that Spark's page shows.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.request

from tidemark.spark.runtime.session import open_session

if __name__ == "__main__":
    files = json.loads(os.environ.get("FILES", "{}"))
    spark = open_session("settings", files)
    found = {name: spark.conf.get(name) for name in sys.argv[1:]}
    if files:
        # What is read and written as files has these settings, on the executors too.
        hadoop = spark._jsparkSession.sessionState().newHadoopConf()
        found |= {name: hadoop.get(name) for name in files}
        # Spark tells its page and its event log of the settings whenever a file is added.
        spark.sparkContext.addFile(__file__)
        address = f"{spark.sparkContext.uiWebUrl}/api/v1/applications/{spark.sparkContext.applicationId}/environment"
        while "fs." not in (shown := urllib.request.urlopen(address).read().decode()) or not all(
            name in shown for name in files
        ):
            time.sleep(0.2)
        found["shown"] = shown
    print(json.dumps(found))
    spark.stop()
