"""What is seen only on all nodes together: who is at the far end of a cable, and whether libraries are the
same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from fabric_plan.checks.model import Check, Verdict, at
from fabric_plan.checks.scene import Place, Scene, View
from fabric_plan.compare.desired import Desired
from fabric_plan.inventory.schema import NcclLibrary
from fabric_plan.nccl.library import MARKER, judge
from fabric_plan.nccl.library import Library as NcclLibraryFile
from fabric_plan.nccl.log import Verdict as LibraryVerdict
from fabric_plan.node.document import Library
from fabric_plan.node.records import LldpNeighbour

NCCL_ENVIRONMENT = "/etc/fabric-plan/env/nccl.env"

# A neighbour entry in one of these states was answered by the far end.
_ANSWERED = frozenset({"REACHABLE", "STALE", "DELAY", "PROBE"})


def cable_checks(view: View) -> Iterator[Check]:
    """Yield for each cabled function whether the planned neighbour is at its far end."""
    scene, owners = view.scene, view.scene.owners()
    for function in view.functions:
        peers = scene.peers.get((view.node, function.netdev), ())
        if not peers:
            continue
        ports = {(node, f.port) for node, netdev in peers if (f := scene.function((node, netdev)))}
        seen = list(_seen(view, function.netdev, peers, owners))
        wrong = [words for words, who, exact in seen if not _right(scene, who, peers, ports, exact)]
        right = [words for words, who, exact in seen if _right(scene, who, peers, ports, exact)]
        verdict = Verdict.FAIL if wrong else Verdict.PASS if right else Verdict.NOT_PROVEN
        things = tuple(thing for node, netdev in peers for thing in (node, at(node, netdev)))
        yield view.check(
            "cable",
            verdict,
            "; ".join(wrong or right) or "nobody was heard: no LLDP, no resolved neighbour",
            " or ".join(" ".join(peer) for peer in peers),
            interface=function.netdev,
            needs=(*view.needs(*(f.netdev for f in view.functions)), *things),
        )


def _right(
    scene: Scene, who: Place | None, peers: tuple[Place, ...], ports: set[tuple[str, str]], exact: bool
) -> bool:
    """Tell whether a neighbour that was seen is the planned one; both functions of a port hear LLDP."""
    if who is None:
        return False
    function = scene.function(who)
    return who in peers or (not exact and function is not None and (who[0], function.port) in ports)


def _seen(
    view: View, netdev: str, peers: tuple[Place, ...], owners: Mapping[str, Place]
) -> Iterator[tuple[str, Place | None, bool]]:
    """Yield what was heard of the far end: in words, who that is, and whether the very function is meant."""
    for heard in view.facts.lldp.value or ():
        if heard.dev != netdev:
            continue
        who = _speaker(view.scene, heard, owners)
        if who is None or who[0] != view.node:
            named = " ".join(who) if who else f"{heard.chassis_name or '?'} {heard.port_id or '?'}"
            yield f"LLDP: {named}", who, False
    addresses = {
        (f.address or "").partition("/")[0]: place for place in peers if (f := view.scene.function(place))
    }
    for neighbour in view.facts.neighbours.value or ():
        if neighbour.dev != netdev or neighbour.address not in addresses or neighbour.mac is None:
            continue
        if _ANSWERED & set(neighbour.states):
            who = owners.get(neighbour.mac)
            expected = addresses[neighbour.address]
            if who is None and view.scene.live_mac(expected) is None:
                continue  # that node did not answer: nothing is known of its MACs
            named = " ".join(who) if who else "nobody's MAC"
            yield f"{neighbour.address} is at {neighbour.mac}: {named}", who, True


def _speaker(scene: Scene, heard: LldpNeighbour, owners: Mapping[str, Place]) -> Place | None:
    port = (heard.port_id or "").lower()
    if port in owners:
        return owners[port]
    system = (heard.chassis_name or "").partition(".")[0]
    for node, functions in scene.known.items():
        facts = scene.facts.get(node)
        called = {node, (facts.host.hostname or node).partition(".")[0] if facts else node}
        for function in functions:
            if system in called and function.netdev in (heard.port_id, heard.port_description):
                return node, function.netdev
    return None


def library_checks(scene: Scene, views: Mapping[str, View]) -> Iterator[Check]:
    """Yield for each library that was asked for, and is on any node, whether it is the same everywhere."""
    paths = sorted({path for facts in scene.facts.values() for path in facts.libraries})
    for path in paths:
        found = {node: view.facts.libraries.get(path) for node, view in views.items()}
        if not any(library and library.sha256 for library in found.values()):
            continue
        digests = Counter(library.sha256 for library in found.values() if library and library.sha256)
        usual = digests.most_common(1)[0][0]
        for node, view in views.items():
            yield _same(view, path, found[node], usual, digests, scene)
            library = found[node]
            if library is not None and library.sha256:
                yield _kind(view, path, library, scene.library)


def _same(
    view: View, path: str, library: Library | None, usual: str, digests: Counter[str], scene: Scene
) -> Check:
    expected = f"{usual[:12]} as on the other nodes"
    missing = sorted(set(scene.desired) - set(scene.facts))
    if library is None or not library.sha256:
        read, verdict = (library.error if library else None) or "not read", Verdict.FAIL
    elif library.sha256 != usual:
        read, verdict = library.sha256[:12], Verdict.FAIL
    elif missing:
        read, verdict = f"{usual[:12]}; {', '.join(missing)} did not answer", Verdict.NOT_PROVEN
    else:
        read, verdict = usual[:12], Verdict.PASS
    if len(set(digests.values())) == 1 and len(digests) > 1:
        expected = "the same on every node"
    return view.check("library", verdict, read, expected, subject=path, needs=(*view.needs(), *missing))


def _kind(view: View, path: str, library: Library, mode: NcclLibrary) -> Check:
    """Judge a library by the planned environment: NCCL ignores in silence what it does not know."""
    expected = f"a {mode} library that knows the planned environment"
    version = tuple(int(word) for word in (library.version or "").split(".") if word.isdigit())
    if not version:
        return view.check(
            "library-mode",
            Verdict.NOT_PROVEN,
            "no NCCL version stands in it",
            expected,
            subject=path,
            needs=view.needs(path),
        )
    major, minor, patch = (*version, 0, 0)[:3]
    known = NcclLibraryFile(
        path=path,
        version=(major, minor, patch),
        cuda="",
        marker=MARKER in library.marks,
        names=frozenset(library.marks),
        sha256=library.sha256 or "",
    )
    findings = judge(known, planned_names(view.want), mode)
    bad = [finding for finding in findings if finding.verdict is LibraryVerdict.BAD]
    words = "; ".join(finding.text for finding in bad or findings)
    return view.check(
        "library-mode",
        Verdict.FAIL if bad else Verdict.PASS,
        f"NCCL {known.release}: {words}",
        expected,
        subject=path,
        needs=view.needs(path),
        mend=bad[0].mend if bad else None,
    )


def planned_names(want: Desired) -> tuple[str, ...]:
    """Return the variables of a node's planned NCCL environment."""
    file = want.file(NCCL_ENVIRONMENT)
    lines = file.content.splitlines() if file else []
    return tuple(line.partition("=")[0] for line in lines if line.startswith("NCCL_"))


def marks_for(want: Desired) -> tuple[str, ...]:
    """Return the words to look for in a library's bytes."""
    return (MARKER, *planned_names(want))
