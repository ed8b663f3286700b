"""Dead letters in Parquet files, in the folders of the sink `parquet`: one for each attempt that has any."""
