"""The shortest stream file."""

from __future__ import annotations

MINIMAL = """\
stream: orders
source:
  topics: [orders]
scheme:
  type: json
  fields:
    id: integer
sinks:
  - type: hbase
    table: orders
dead_letters:
  type: hbase
  table: orders_dead
"""
