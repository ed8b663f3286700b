"""`./run pages`: the pages on streams in memory, without any server, and again after each change of a file."""

from __future__ import annotations

import argparse
import os
import sys

import uvicorn

from services.site import REPOSITORY, Site


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run pages", description=__doc__)
    parser.add_argument("--port", type=int, default=8090, help="of 127.0.0.1; 8090 without it")
    options = parser.parse_args()
    # Airflow makes a home wherever it is imported.
    os.environ |= {
        "AIRFLOW_HOME": str(Site.from_environment().folder("pages")),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
    print(f"http://127.0.0.1:{options.port}/tidemark/  (Ctrl-C ends it)", file=sys.stderr, flush=True)
    uvicorn.run(
        "tests.pages.app:with_streams",
        factory=True,
        host="127.0.0.1",
        port=options.port,
        log_level="warning",
        reload=True,
        reload_dirs=[str(REPOSITORY / one) for one in ("tidemark", "tests/pages", "tests/support")],
        reload_includes=["*.py", "*.js", "*.css", "*.html"],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
