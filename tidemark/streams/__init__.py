"""Stream files: one describes one pipeline."""
