"""The facts of a node, read from the untrusted document that it sent: types, sizes and words checked.

The records are those of `fabric_plan.node.document` and `fabric_plan.node.records`; what is here turns bytes
into them, or says clearly why not, and answers the questions that every consumer asks.
"""

from fabric_plan.facts.load import MAX_DOCUMENT_BYTES, load_facts
from fabric_plan.facts.questions import effective_sysctl, link_of, must_read, shadowed
from fabric_plan.node.document import Facts

__all__ = [
    "MAX_DOCUMENT_BYTES",
    "Facts",
    "effective_sysctl",
    "link_of",
    "load_facts",
    "must_read",
    "shadowed",
]
