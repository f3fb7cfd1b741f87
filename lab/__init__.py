"""The staging lab: virtual machines whose kernels see what a DGX Spark's kernel sees, cabled as an
inventory says.
"""
