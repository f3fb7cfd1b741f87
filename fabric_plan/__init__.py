"""Plan, prove, apply and verify a switchless RDMA fabric of directly cabled hosts."""

__version__ = "0.1.0"
