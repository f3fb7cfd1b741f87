"""What the card has to be before hardware forwarding works (docs/fabric.md 6): looked at, never silently
changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fabric_plan.compare.desired import Desired, DesiredFunction
from fabric_plan.node.document import Facts

ESWITCH = "eswitch-mode"
STEERING = "steering-mode"
TRUST = "dscp-trust"
ONE_CARD = "unequal-guids"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of one function. `have` is None where it could not be read; `text` says what is wrong."""

    id: str
    netdev: str
    have: str | None
    want: str
    text: str
    hint: str

    @property
    def wrong(self) -> bool:
        """Whether it was read and is not what it has to be."""
        return self.have is not None and self.have != self.want


def settings(want: Desired, facts: Facts) -> Iterator[Setting]:
    """Yield every setting of every function; none where nothing is relayed."""
    if not want.mesh:
        return
    guids = {port.netdev: port.sys_image_guid for port in facts.rdma.ports.value or ()}
    first = next((guids[f.netdev] for f in want.functions if guids.get(f.netdev)), None)
    for function in want.functions:
        yield from _devlink(function, facts)
        yield _trust(function, facts)
        guid = guids.get(function.netdev)
        yield Setting(
            ONE_CARD,
            function.netdev,
            guid,
            first or "that of its twins",
            f"the functions are not of one card: sys_image_guid {guid}, another has {first}",
            "the driver refuses to redirect between cards",
        )


def _devlink(function: DesiredFunction, facts: Facts) -> Iterator[Setting]:
    state, pci = facts.devlink.get(function.pci), function.pci
    mode = state.eswitch.value.mode if state and state.eswitch.value else None
    yield Setting(
        ESWITCH,
        function.netdev,
        mode,
        "legacy",
        f"eswitch mode is {mode}, not legacy",
        f"`devlink dev eswitch set pci/{pci} mode legacy` while nothing runs",
    )
    params = (state.params.value if state else None) or {}
    steering = params["flow_steering_mode"].values.get("runtime") if "flow_steering_mode" in params else None
    yield Setting(
        STEERING,
        function.netdev,
        steering,
        "hmfs",
        f"flow steering is {steering}, not hmfs",
        f"`devlink dev param set pci/{pci} name flow_steering_mode value hmfs cmode runtime`",
    )


def _trust(function: DesiredFunction, facts: Facts) -> Setting:
    qos = facts.qos.get(function.netdev)
    trust = qos.mlnx_qos.value.trust if qos and qos.mlnx_qos.value else None
    if trust is None and qos is not None and qos.dcb.complete and qos.dcb.value is not None:
        # The driver trusts DSCP from the first dscp-prio entry on, and goes back with the last one.
        trust = "dscp" if qos.dcb.value.tables.get("dscp-prio") else "pcp"
    return Setting(
        TRUST,
        function.netdev,
        trust,
        "pcp",
        "trusts DSCP, and the driver refuses a hairpin then",
        f"`mlnx_qos -i {function.netdev} --trust pcp`",
    )
