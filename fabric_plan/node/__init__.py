"""The program that runs on a node: it reads the node's state and carries out signed-off steps there.

Standard library only, Python 3.9 and newer, and no import from the rest of the package: the whole folder is
packed into one archive and sent over the connection, and nothing else is ever installed on a node.
"""
