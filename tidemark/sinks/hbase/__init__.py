"""The sink `hbase`: a row for each message and row number. The other tables in HBase use its layout too."""
