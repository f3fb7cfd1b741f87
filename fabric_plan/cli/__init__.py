"""The command line: one module a verb, loaded when that verb is asked for."""
