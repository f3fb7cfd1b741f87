"""The way to a node: over SSH, or to this machine itself; the same node program at the other end."""
