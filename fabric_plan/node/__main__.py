"""The node program: ``VERB [--root DIR] [--patience FACTOR]`` with a JSON request on stdin and one JSON
document on stdout.

Exit status: 0 done, 1 the verb failed (one line on stderr says why), 64 wrong usage.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Optional

from .request import TOOL_LIMIT_S, RequestError, parse_request
from .tools import Tools
from .transaction.faults import FAULTS
from .tree import Tree

Verb = Callable[[str, Tree, Tools], str]
MAX_REQUEST_BYTES = 16 << 20


def collect_facts(text: str, tree: Tree, tools: Tools) -> str:
    """Return the facts document as JSON; the request's limit for one tool is the one that counts."""
    from .collect import collect

    request = parse_request(text)
    facts = collect(request, tree, Tools(request.tool_limit_s, tools.own_path))
    return json.dumps(facts, default=vars, sort_keys=True)


def find(verb: str) -> Optional[Verb]:
    """Return what does a verb, or None; only its own modules are loaded, since every call pays for them."""
    if verb == "collect":
        return collect_facts
    if verb == "probe-cables":
        from .lldp import probe_cables

        return probe_cables
    if verb.startswith("probe-"):
        from . import probe

        return partial(probe.answer, verb) if verb in probe.KEYS else None
    from .transaction.verbs import KEYS, answer

    return partial(answer, verb) if verb in KEYS else None


def main(arguments: Sequence[str]) -> int:
    """Run one verb; see the module's text."""
    words = list(arguments)
    root, patience = "/", 1.0
    if "--patience" in words[:-1]:
        at = words.index("--patience")
        patience = float(words[at + 1])
        del words[at : at + 2]
    if "--root" in words[:-1]:
        at = words.index("--root")
        root = os.path.abspath(words[at + 1])  # noqa: PTH100 - a string is what Tree takes
        del words[at : at + 2]
        # The scripts of the trial find their files below the same folder, and tests their faults.
        os.environ["FABRIC_PLAN_ROOT"] = root if root != "/" else ""
        FAULTS.arm(os.environ)
    work = find(words[0]) if len(words) == 1 else None
    if work is None:
        print("usage: VERB [--root DIR] < request.json; there is no such verb", file=sys.stderr)
        return 64
    request = sys.stdin.buffer.read(MAX_REQUEST_BYTES + 1)
    try:
        if len(request) > MAX_REQUEST_BYTES:
            raise RequestError(f"a request of more than {MAX_REQUEST_BYTES} bytes")
        text = request.decode("utf-8", "replace")
        document = work(text, Tree(root), Tools(TOOL_LIMIT_S, root != "/", patience))
    except RequestError as error:
        print(error, file=sys.stderr)
        return 1
    sys.stdout.write(document + "\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # A thread may still be stuck in the kernel on a broken device: leave without waiting for it.
    os._exit(status)
