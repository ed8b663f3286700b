"""The comparisons of an audit that need Spark."""
