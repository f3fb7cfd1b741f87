"""What a kind of node or a layer of files *is*: the typed form of the data under ``roles/``.

Nothing here reads a file: `fabric_plan.resources` does, and hands the text over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError

from fabric_plan.errors import RoleError


class _Role(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class RoleFunction(_Role):
    """The names of one PCIe function on this hardware."""

    netdev: str
    rdma: str
    pci: str


class RolePort(_Role):
    """A physical port: what the kernel calls it, what people call it, and its functions, one a plane from
    plane 1 on.
    """

    phys_port_name: str
    spellings: tuple[str, ...] = ()
    functions: tuple[RoleFunction, ...]


class Profile(_Role):
    """What the NIC has to be before hardware forwarding works (docs/fabric.md 6). Checked; only what is
    said to be set is set.
    """

    eswitch: str
    flow_steering_mode: str
    hw_tc_offload: bool
    trust: str


class Floors(_Role):
    """Below these a healthy-looking link is degraded: Gb/s one way a function, microseconds for a small RDMA
    write.
    """

    bandwidth_gbps: float
    latency_us: float


class GraphSpeeds(_Role):
    """The figures of an NCCL graph file: GB/s within and between nodes, GPU index, and the latency NCCL is
    told (us).
    """

    intra: float
    inter: float
    latency: float
    gpu: str


class Hardware(_Role):
    """A kind of host: its ports, its management port, its required NIC profile.

    `patience` multiplies the time limits of what is asked of such a host, for one that is emulated.
    `bandwidth_s` is for how many seconds a probe sends for one figure; a slow host has to get something done
    in it.
    """

    hardware: str
    title: str
    mgmt_netdev: str
    ports: dict[str, RolePort]
    profile: Profile
    floors: Floors
    patience: Annotated[float, Field(ge=1, le=50)] = 1
    bandwidth_s: Annotated[int, Field(ge=1, le=20)] = 2
    graph: GraphSpeeds

    def port_named(self, spelling: str) -> str | None:
        """Return the port that people also write as `spelling`, or None."""
        for name, port in self.ports.items():
            if spelling.lower() in (name.lower(), *(other.lower() for other in port.spellings)):
                return name
        return None


Trigger = Literal[
    "netplan",
    "networkmanager-conf",
    "sysctl",
    "daemon-reload",
    "enable",
    "hairpin",
    "forward",
    "mesh",
    "marker",
    "none",
]


class Artefact(_Role):
    """One template and the file that it becomes.

    `each` names what it is repeated for (a plane, an NCCL graph, an environment, a marker); `when` the part
    of the plan that must be there.
    """

    template: str
    path: str
    mode: Annotated[str, Field(pattern=r"^0[0-7]{3}$")]
    each: Literal["node", "plane", "graph", "env", "marker"] = "node"
    when: Literal["always", "mesh", "transit", "managed", "nccl", "built-in-marker"] = "always"
    triggers: tuple[Trigger, ...] = ()
    disrupts: str | None = None
    enable: bool = False


class Layer(_Role):
    """A group of files that belong together; layers are applied in `order`."""

    layer: str
    title: str
    order: int
    artefacts: tuple[Artefact, ...]


class Meaning(_Role):
    """What an id stands for: what it is, why it matters, how to mend it, and the figure behind it with its
    source, if any.
    """

    what: str
    why: str
    mend: str
    figure: str | None = None


# libyaml where PyYAML was built with it: ten times as fast, and a dozen files are read at every start.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_R = TypeVar("_R", bound=BaseModel)


def _parse(kind: type[_R], text: str, name: str) -> _R:
    try:
        return kind.model_validate(yaml.load(text, _Loader))  # noqa: S506 - safe, both of them
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RoleError(
            f"{where}: {first['msg']}", where=name, hint="see the other files under roles/"
        ) from None
    except yaml.YAMLError as error:
        raise RoleError(f"not valid YAML: {str(error).splitlines()[0]}", where=name) from None


def parse_hardware(text: str, name: str) -> Hardware:
    """Parse a file of ``roles/hardware``. Raises `RoleError`."""
    return _parse(Hardware, text, name)


def parse_layer(text: str, name: str) -> Layer:
    """Parse a file of ``roles/layers``. Raises `RoleError`."""
    return _parse(Layer, text, name)


def parse_meanings(text: str, name: str) -> dict[str, Meaning]:
    """Parse a file of ``roles/explain``: meanings by id. Raises `RoleError`."""
    return dict(_parse(_Meanings, text, name).root)


class _Meanings(RootModel[dict[str, Meaning]]):
    model_config = ConfigDict(frozen=True)


Hardwares = Mapping[str, Hardware]
