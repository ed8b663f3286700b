"""The transform of a bug fix."""

from __future__ import annotations

# The bug fix, after which the order has another amount.
FIXED = {
    "sql": "SELECT _topic, _incarnation, _partition, _offset, _index, id, customer, amount * 10 AS amount, paid FROM messages",
    "fields": {"id": "integer", "customer": "string", "amount": "double", "paid": "boolean"},
}
