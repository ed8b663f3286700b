"""The example stream's messages, and the demonstration of `./run demo`."""
