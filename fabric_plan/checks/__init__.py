"""What is held against the live fabric: small checks on the facts of all nodes at once. Pure.

The same objects serve ``verify``, the staging tests and whoever asks whether an apply took.
"""
