"""How a Spark job is started: by spark-submit, or in a warm engine."""
