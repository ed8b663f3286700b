"""A job that ends with the exit code, and the name of the error, that it is told, or sleeps; for tests of the operator."""

import sys
import time

if sys.argv[1] == "sleep":
    time.sleep(600)

name = sys.argv[2] if len(sys.argv) > 2 else "SomeError"
print(f"tidemark: {name}: what went wrong", file=sys.stderr)
sys.exit(int(sys.argv[1]))
