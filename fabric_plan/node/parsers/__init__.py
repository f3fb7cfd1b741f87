"""One parser a tool and output form: text in, a `Reading` of records out; no parser raises or guesses."""
