"""What all parts of a stream file have in common: strict models, their errors in words, and types of other packages."""
