"""NCCL and RoCEnante on this fabric: environment, graph files, their lint, and what a library or a log says
about them.
"""
