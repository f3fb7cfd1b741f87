"""What the checks look at: wanted state and facts of all nodes at once, and who sits opposite whom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fabric_plan.checks.model import Check, Verdict, at
from fabric_plan.checks.texts import TEXTS
from fabric_plan.compare.desired import Desired, DesiredFunction
from fabric_plan.compare.diff import diff
from fabric_plan.compare.model import Change, Resource
from fabric_plan.compare.network import network_changes
from fabric_plan.facts.questions import link_of
from fabric_plan.inventory.schema import NcclLibrary
from fabric_plan.node.document import Facts
from fabric_plan.planner.model import Plan

Place = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Scene:
    """The whole fabric: `facts` of the nodes that answered, in `failed` the reasons of those that did not.

    `peers` gives for a function (node, netdev) those at the other end of its cable in its plane, `known`
    every function of every node, the unmanaged ones too. `library` is the kind that the plan is written for.
    """

    desired: Mapping[str, Desired]
    facts: Mapping[str, Facts]
    failed: Mapping[str, str] = field(default_factory=dict)
    known: Mapping[str, tuple[DesiredFunction, ...]] = field(default_factory=dict)
    peers: Mapping[Place, tuple[Place, ...]] = field(default_factory=dict)
    library: NcclLibrary = NcclLibrary.STOCK

    @classmethod
    def of(
        cls,
        plan: Plan,
        desired: Mapping[str, Desired],
        facts: Mapping[str, Facts],
        failed: Mapping[str, str] | None = None,
    ) -> Scene:
        """Return the scene of a plan; `desired` are its nodes' states, or those of some of them."""
        known = {
            node.name: tuple(
                DesiredFunction(
                    f.function.netdev,
                    f.function.rdma,
                    f.function.pci,
                    f.function.mac,
                    f.function.plane,
                    f.function.port,
                    str(f.address) if f.address else None,
                )
                for f in node.functions
            )
            for node in plan.nodes
        }
        peers: dict[Place, tuple[Place, ...]] = {}
        for cable in plan.fabric.cables:
            for plane in plan.fabric.planes:
                ends = [
                    (end.node, plan.fabric.node(end.node).function(end.port, plane).netdev)
                    for end in cable.ends
                ]
                for end in ends:
                    peers[end] = tuple(other for other in ends if other != end)
        return cls(desired, facts, failed or {}, known, peers, plan.fabric.nccl_library)

    def function(self, place: Place) -> DesiredFunction | None:
        """Return the planned function at a place."""
        return next((f for f in self.known.get(place[0], ()) if f.netdev == place[1]), None)

    def live_mac(self, place: Place) -> str | None:
        """Return the MAC that a function has now; None where that is not known."""
        facts = self.facts.get(place[0])
        link = link_of(facts, name=place[1]) if facts else None
        return link.mac if link else None

    def owners(self) -> Mapping[str, Place]:
        """Return who has which MAC now."""
        return {
            mac: (node, f.netdev)
            for node, functions in self.known.items()
            for f in functions
            if (mac := self.live_mac((node, f.netdev)))
        }


class View:
    """One node of a scene, with what a comparison of its files with its facts finds."""

    def __init__(self, scene: Scene, node: str) -> None:
        self.scene, self.node = scene, node
        self.want, self.facts = scene.desired[node], scene.facts[node]
        managed = {f.netdev for f in self.want.functions}
        others = tuple(f for f in scene.known.get(node, ()) if f.netdev not in managed)
        # A function that is not ours is looked at all the same; its files and rules are its owner's.
        watched = replace(self.want, files=(), functions=others, routes=(), sysctls=(), rules=(), markers=())
        changes = (*diff(self.want, self.facts).changes, *network_changes(watched, self.facts))
        self.functions = tuple(f for f in (*self.want.functions, *others) if f.address is not None)
        self.changes = changes
        self._unknown = {c.name: c for c in changes if c.resource is Resource.UNKNOWN}

    def of(self, resource: Resource, name: str | None = None) -> list[Change]:
        """Return the differences of one kind, of one thing where `name` is given."""
        return [c for c in self.changes if c.resource is resource and name in (None, c.name)]

    def needs(self, *things: str | None) -> tuple[str, ...]:
        """Return things of this node as checks name what they rest on; the node itself always."""
        return (self.node, *(at(self.node, thing) for thing in things if thing))

    def check(
        self,
        id: str,
        verdict: Verdict,
        read: str,
        expected: str,
        *,
        interface: str | None = None,
        subject: str = "",
        needs: Sequence[str] = (),
        mend: str | None = None,
    ) -> Check:
        """Return a check of this node."""
        text = TEXTS[id]
        filled = mend or _fill(text.mend, interface, subject)
        return Check(
            id, text.layer, self.node, interface, subject, verdict, read, expected, filled, tuple(needs)
        )

    def judged(
        self,
        id: str,
        found: Iterable[Change],
        expected: str,
        *,
        readable: Sequence[str] = (),
        interface: str | None = None,
        subject: str = "",
        needs: Sequence[str] = (),
        read: str | None = None,
    ) -> Check:
        """Return a check by what the comparison found: nothing passes, unless one of the `readable` readings
        that it rests on was not to be had.
        """
        for name in readable:
            if name in self._unknown:
                return self.check(
                    id,
                    Verdict.NOT_PROVEN,
                    f"{name}: not readable",
                    expected,
                    interface=interface,
                    subject=subject,
                    needs=needs,
                )
        changes = list(found)
        unread = [c for c in changes if c.have == "not readable"]
        words = "; ".join(c.have or "absent" for c in changes) or read or expected
        verdict = Verdict.PASS if not changes else Verdict.FAIL
        if changes and len(unread) == len(changes):
            verdict = Verdict.NOT_PROVEN
        return self.check(id, verdict, words, expected, interface=interface, subject=subject, needs=needs)

    def netplan_file(self, plane: int) -> str | None:
        """Return the path of the netplan file of a plane, None where this plan writes none."""
        return next((f.path for f in self.want.files if f.path.endswith(f"-plane{plane}.yaml")), None)


def _fill(text: str, interface: str | None, subject: str) -> str:
    for word, value in (("DEV ", interface), ("UNIT", subject), ("DEVICE", subject)):
        if value:
            text = text.replace(word, f"{value} " if word.endswith(" ") else value)
    return text
