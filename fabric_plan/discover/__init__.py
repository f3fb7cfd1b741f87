"""From what is found on the nodes (netplan files, dumps, facts, LLDP) to an inventory, or to the reasons
why not.
"""
