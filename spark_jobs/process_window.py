"""spark-submit starts this: the job that the first word names. Without a word, it processes windows of a lane."""

import sys
from importlib import import_module

from tidemark.errors import EXIT_WRONG_USE
from tidemark.spark.jobs import entry

_JOBS = ("window", "audit", "compare", "compact", "samples")

if __name__ == "__main__":
    word = "window" if sys.argv[1:2] == [] or sys.argv[1].startswith("-") else sys.argv.pop(1)
    if word == "engine":
        import_module("tidemark.spark.engine.starting").main()
    elif word in _JOBS:
        entry.run(import_module(f"tidemark.spark.jobs.{word}").main)
    else:
        print(f"tidemark: WrongUse: {word!r} is no job; expected {', '.join((*_JOBS, 'engine'))}", file=sys.stderr)
        sys.exit(EXIT_WRONG_USE)
