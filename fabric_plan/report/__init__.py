"""What a person reads of a plan: a drawing, tables, words. Text only, no I/O."""
