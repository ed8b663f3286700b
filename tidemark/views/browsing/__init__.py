"""Looking through messages, dead letters and results by what is in them, a bounded part at a time."""
