"""The command line: what the ledger says and what is in the results, without Airflow and without Spark.

Data goes to standard output, everything else to standard error; `--json` gives data for programs.
"""
