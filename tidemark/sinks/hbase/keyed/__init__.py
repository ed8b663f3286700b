"""Tables in HBase with a row for each key, which are published after the commit."""
