"""One message: where it went, what is stored of it, and how people may look at it."""
