"""The way of a message from Kafka to its rows; `pipeline` lists the stages in order."""
