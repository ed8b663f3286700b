"""The schemes of stream files: how a message's bytes become fields, and the fields' types."""
