"""From a `Plan` to the bytes of every file: roles say which, templates say how, views prepare what they
print.
"""
