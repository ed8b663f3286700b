"""`healthy.py NAME`: ends with 0 when that part of Airflow or Spark is well. The API server knows of all of Airflow."""

import json
import sys
from http.client import HTTPConnection


def get(host: str, port: int, path: str) -> dict:
    connection = HTTPConnection(host, port, timeout=5)
    connection.request("GET", path)
    return json.load(connection.getresponse())


def healthy(name: str) -> bool:
    if name == "spark-master":
        return get("spark-master", 8080, "/json/")["status"] == "ALIVE"
    if name == "spark-worker":
        # What the master says counts: a worker that it does not know gets no work.
        return any(one["state"] == "ALIVE" for one in get("spark-master", 8080, "/json/")["workers"])
    return get("airflow-api", 8080, "/api/v2/monitor/health")[name]["status"] == "healthy"


sys.exit(not healthy(sys.argv[1]))
