"""A job that ends with the exit code that it is told, for the tests of the operator."""

import sys

print("tidemark: SomeError: what went wrong", file=sys.stderr)
sys.exit(int(sys.argv[1]))
