"""The pages on streams in memory, for who works on them: `./run pages`."""
