"""Desired state against live state: what differs, what mends it, and whom that disturbs. Pure."""
