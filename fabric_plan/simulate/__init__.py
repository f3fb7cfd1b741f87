"""The proof before the wire: packets of the planned fabric, walked one hop at a time (DESIGN.md 6)."""
