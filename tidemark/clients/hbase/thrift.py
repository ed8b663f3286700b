"""The names of HBase's Thrift 1 interface. The module `Hbase_thrift` exists only after happybase is imported."""

import happybase
from Hbase_thrift import (
    AlreadyExists,
    BatchMutation,
    ColumnDescriptor,
    IllegalArgument,
    Mutation,
)
from Hbase_thrift import IOError as HBaseIOError

Connection = happybase.Connection

__all__ = [
    "AlreadyExists",
    "BatchMutation",
    "ColumnDescriptor",
    "Connection",
    "HBaseIOError",
    "IllegalArgument",
    "Mutation",
]
