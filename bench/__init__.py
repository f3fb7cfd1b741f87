"""Benchmarks: figures with a peer measured in the same run, so that a slow machine shows in both columns."""
