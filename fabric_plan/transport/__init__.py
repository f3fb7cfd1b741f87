"""The way to a node: over SSH, or to the machine that this runs on; the same node program at the other end."""
