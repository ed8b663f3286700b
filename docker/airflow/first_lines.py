"""Make what the example needs, where it is not there yet: the database of ledgers, two topics, and the first lines of one."""

from pathlib import Path

import psycopg
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from psycopg import sql

from demo.cdn_lines import produce

KAFKA = "kafka:9092"
TOPIC = "cdn-logs"
PARTITIONS = 4
LINES = 2000
# The ledger's database and its owner.
NAME = "tidemark"


def secret(name: str) -> str:
    return Path("/run/secrets", name).read_text()


def make_database() -> None:
    name, password = sql.Identifier(NAME), sql.Literal(secret("TIDEMARK_SQL_PASSWORD"))
    login = {
        "host": "postgres",
        "user": "airflow",
        "password": secret("TIDEMARK_POSTGRES_PASSWORD"),
        "dbname": "airflow",
    }
    with psycopg.connect(**login, autocommit=True) as connection:
        if not connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [NAME]).fetchall():
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(name))
        connection.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(name, password))
        if not connection.execute("SELECT FROM pg_database WHERE datname = %s", [NAME]).fetchall():
            connection.execute(
                sql.SQL("CREATE DATABASE {} OWNER {} ENCODING 'UTF8' TEMPLATE template0").format(name, name)
            )


def make_topics() -> None:
    admin = KafkaAdminClient(bootstrap_servers=KAFKA)
    missing = {TOPIC, f"{TOPIC}-normalised"} - set(admin.list_topics())
    if missing:
        admin.create_topics([NewTopic(one, PARTITIONS, 1) for one in sorted(missing)])
    admin.close()


def is_empty() -> bool:
    consumer = KafkaConsumer(bootstrap_servers=KAFKA)
    ends = consumer.end_offsets([TopicPartition(TOPIC, number) for number in consumer.partitions_for_topic(TOPIC)])
    consumer.close()
    return not any(ends.values())


if __name__ == "__main__":
    make_database()
    make_topics()
    if is_empty():
        produce(KAFKA, TOPIC, LINES)
        print(f"{LINES} lines are in the topic {TOPIC}")
