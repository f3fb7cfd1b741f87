"""Bring nodes from one state to the next as a transaction: trial, look, confirm; or everything back."""
