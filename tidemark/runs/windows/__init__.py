"""From a lane to its next window: what is read again with it, how much at once, and how it is pinned."""
