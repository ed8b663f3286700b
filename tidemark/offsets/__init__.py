"""Offsets and the tallies of messages: values and arithmetic. Nothing here asks a server."""
