"""Tables of a lake with the newest row of each key, made of the changes that the windows have written."""
