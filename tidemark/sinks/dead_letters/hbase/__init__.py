"""Dead letters in a table of HBase, with the layout of the sink `hbase`."""
