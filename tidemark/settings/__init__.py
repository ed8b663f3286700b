"""The base of all parts of a stream file: strict models, their errors in words, and types of other packages."""
