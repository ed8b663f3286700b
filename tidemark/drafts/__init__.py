"""Drafts of stream files: what a topic's messages look like, and the file that reads them."""
