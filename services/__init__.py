"""The real servers on one machine: set up, started, watched and stopped, all on 127.0.0.1."""
