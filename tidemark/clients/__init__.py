"""How servers are reached: Airflow's connections, Kafka, HBase, ZooKeeper and the schema registry."""
