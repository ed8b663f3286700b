"""The work on data: reading a window, giving each message its outcome, storing, tallying, reading back. With Spark."""
