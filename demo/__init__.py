"""The example stream's messages, and the demonstration that `./run demo` gives."""
