"""A verification for people, for programs and for a test runner's XML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any
from xml.etree import ElementTree

from fabric_plan.checks.model import Check, Layer, Verdict, Verification
from fabric_plan.errors import printable
from fabric_plan.node.document import Facts

SCHEMA = "fabric-plan/verify/v1"
SHOWN = 8


def only(verification: Verification, nodes: Sequence[str]) -> Verification:
    """Return what concerns some nodes: their checks, and the roots of whatever is wrong there."""
    return Verification(
        tuple(c for c in verification.checks if c.node in nodes),
        tuple(
            root
            for root in verification.roots
            if any(c.node in nodes for c in (root.check, *root.consequences))
        ),
    )


def rows(verification: Verification, nodes: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the table: a layer a row, a node a column."""
    counted = Counter((c.layer, c.node, c.verdict) for c in verification.checks)
    for layer in Layer:
        if any(counted[layer, node, verdict] for node in nodes for verdict in Verdict):
            yield layer, *(_cell(counted, layer, node) for node in nodes)


def _cell(counted: Counter[tuple[Layer, str, Verdict]], layer: Layer, node: str) -> str:
    found = {verdict: counted[layer, node, verdict] for verdict in Verdict}
    if not any(found.values()):
        return "-"
    wrong = [f"{found[v]} {v}" for v in (Verdict.FAIL, Verdict.NOT_PROVEN) if found[v]]
    return ", ".join(wrong) or f"{found[Verdict.PASS]} pass"


def findings(verification: Verification, *, all_of_them: bool) -> Iterator[tuple[str, str | None]]:
    """Yield (line, style) for people: each root, how to mend it, and what follows from it."""
    for root in verification.roots:
        check = root.check
        style = "bad" if check.verdict is Verdict.FAIL else "head"
        yield printable(f"{check.verdict}: {check.place}: {check.read} [{check.id}]"), style
        yield printable(f"  expected: {check.expected}"), None
        yield printable(f"  mend: {check.mend}"), None
        if root.consequences:
            yield f"  {len(root.consequences)} more follow from it:", None
            shown = root.consequences if all_of_them else root.consequences[:SHOWN]
            for under in shown:
                yield printable(f"    {under.place}: {under.read} [{under.id}]"), "dim"
            if len(shown) < len(root.consequences):
                yield f"    and {len(root.consequences) - len(shown)} more (-v shows them)", "dim"


def summary(verification: Verification) -> str:
    """Return the last line."""
    counted = Counter(c.verdict for c in verification.checks)
    words = ", ".join(f"{counted[verdict]} {verdict}" for verdict in Verdict if counted[verdict])
    roots = len(verification.roots)
    return f"{words or 'nothing was checked'}" + (f"; {roots} to look at" if roots else "")


def document(
    verification: Verification, *, fabric: str, digest: str | None, facts: Mapping[str, Facts]
) -> dict[str, Any]:
    """Return the verification as ``--json`` prints it."""
    return {
        "schema": SCHEMA,
        "fabric": fabric,
        "digest": digest,
        "ok": verification.ok,
        "nodes": {
            name: {"boot_id": found.host.boot_id, "uptime_s": found.host.uptime_s}
            for name, found in facts.items()
        },
        "checks": [check_document(check) for check in verification.checks],
        "findings": [
            {**check_document(root.check), "consequences": [check_document(c) for c in root.consequences]}
            for root in verification.roots
        ],
    }


def check_document(check: Check) -> dict[str, Any]:
    """Return one check as JSON."""
    return {key: value for key, value in asdict(check).items() if key != "needs"}


def junit(verification: Verification) -> str:
    """Return the checks as JUnit XML: a suite a node. What is not proven is an error there, never skipped."""
    root = ElementTree.Element("testsuites", name="fabric-plan verify")
    under = {c: r.check for r in verification.roots for c in r.consequences}
    for node in dict.fromkeys(c.node for c in verification.checks):
        checks = [c for c in verification.checks if c.node == node]
        counted = Counter(c.verdict for c in checks)
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=node,
            tests=str(len(checks)),
            failures=str(counted[Verdict.FAIL]),
            errors=str(counted[Verdict.NOT_PROVEN]),
        )
        for check in checks:
            place = _xml(f"{check.id} {check.interface or ''} {check.subject}".strip())
            case = ElementTree.SubElement(suite, "testcase", classname=f"{node}.{check.layer}", name=place)
            if check.verdict is not Verdict.PASS:
                kind = "failure" if check.verdict is Verdict.FAIL else "error"
                said = ElementTree.SubElement(case, kind, type=check.verdict, message=_xml(check.read))
                cause = under.get(check)
                follows = f"\nfollows from: {cause.place} [{cause.id}]" if cause else ""
                said.text = _xml(f"expected: {check.expected}\nmend: {check.mend}{follows}")
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _xml(text: str) -> str:
    """Spell out what XML cannot carry."""
    return "\n".join(printable(line) for line in text.split("\n"))
