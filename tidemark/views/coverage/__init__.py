"""The coverage picture: where every offset of a partition is."""
