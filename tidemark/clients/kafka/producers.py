"""Kafka's view of open transactions in some partitions. Read-only; decides nothing."""

from __future__ import annotations

from collections.abc import Iterable

from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaTopicPartition
from kafka.admin import TransactionState
from kafka.errors import TransactionalIdNotFoundError

from tidemark.clients.kafka.transactions import CoordinatedTransaction, OpenProducer, Place

_ENDING = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT, TransactionState.PREPARE_EPOCH_FENCE)


def open_producers(admin: KafkaAdminClient, places: Iterable[Place]) -> dict[Place, list[OpenProducer]]:
    """The producers with an open transaction, per partition. The partitions' leaders know them."""
    described = admin.describe_producers([KafkaTopicPartition(*place) for place in places])
    return {
        (at.topic, at.partition): [
            OpenProducer(
                producer.producer_id,
                producer.producer_epoch,
                producer.current_transaction_start_offset,
                _time(producer.last_timestamp),
            )
            for producer in state.active_producers
            if producer.current_transaction_start_offset >= 0
        ]
        for at, state in described.items()
    }


def coordinated(admin: KafkaAdminClient, producer_ids: Iterable[int]) -> dict[int, CoordinatedTransaction]:
    """The coordinators' view of these producers, by producer id. Producers that we may not see are left out."""
    wanted = sorted(set(producer_ids))
    if not wanted:
        return {}
    listed = admin.list_transactions(producer_id_filters=wanted)
    transactions = {}
    for name in sorted({listing.transactional_id for listings in listed.values() for listing in listings}):
        try:
            transaction = admin.describe_transactions([name])[name]
        except TransactionalIdNotFoundError:
            # The transactional id has expired since it was listed.
            continue
        transactions[transaction.producer_id] = CoordinatedTransaction(
            transactional_id=name,
            epoch=transaction.producer_epoch,
            ending=transaction.state in _ENDING,
            started=_time(transaction.transaction_start_time_ms)
            if transaction.state == TransactionState.ONGOING
            else None,
            partitions=frozenset((at.topic, at.partition) for at in transaction.topic_partitions),
        )
    return transactions


def _time(milliseconds: int) -> int | None:
    return None if milliseconds < 0 else milliseconds
