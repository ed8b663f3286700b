"""HBase through its Thrift 1 gateway: the only place that knows happybase."""
