"""The command line: does what the DAGs do, and shows the ledger and the results, without Airflow.

Data goes to standard output, everything else to standard error. `--json` gives data for programs.
"""
