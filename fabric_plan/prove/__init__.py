"""The proof on a real kernel: the plan in network namespaces, with real pings (Linux, root)."""
