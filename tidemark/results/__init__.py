"""Where results are, in bytes, and how they are read and swept without Spark."""
