"""HBase through its Thrift gateways: the only place that knows happybase."""
