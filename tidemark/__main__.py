"""`python -m tidemark` is the command `tidemark`."""

from tidemark.cli.app import main

main()
