"""`python -m tidemark` is the command `tidemark`."""

from tidemark.cli.front import main

main()
