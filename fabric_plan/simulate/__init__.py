"""The proof before the wire: packets of the planned fabric, walked one hop at a time (docs/proof.md)."""
