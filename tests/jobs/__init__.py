"""Scripts that Spark starts in tests."""
