"""Facts of a node that is exactly as planned, built by code, to be broken one thing at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from ipaddress import IPv4Interface
from typing import TypeVar

from fabric_plan import resources
from fabric_plan.compare.desired import Desired, desired_of
from fabric_plan.node.document import (
    SCHEMA,
    DevlinkState,
    Disk,
    EthtoolState,
    Facts,
    File,
    Host,
    Marker,
    NetworkManager,
    QosState,
    RdmaPort,
    RdmaState,
    Ssh,
    TcState,
    Tool,
    Unit,
    Usage,
)
from fabric_plan.node.parsers import counters
from fabric_plan.node.reading import Reading
from fabric_plan.node.records import (
    Address,
    Dcb,
    DevlinkInfo,
    DevlinkParam,
    Eswitch,
    Feature,
    Gid,
    Interfaces,
    Link,
    Qdisc,
    Qos,
    RdmaLink,
    Reloads,
    Route,
    TcRule,
    VerbsDevice,
)
from fabric_plan.planner.model import Plan
from fabric_plan.render.tree import Rendered, render

T = TypeVar("T")

BOOT = "6f1f7a3e-0000-4000-8000-000000000001"
MGMT = "enP7s7"
MARKER_PROGRAM = "/usr/local/lib/fabric-plan/fabric-plan-marker"
MARKER = File("file", "0755", 0, 0, 1 << 16, "ab" * 32)


def rendered(plan: Plan) -> Rendered:
    """Render with the roles and templates of this checkout."""
    return render(plan, resources.layers(), resources.templates())


def desired(plan: Plan, tree: Rendered | None = None) -> dict[str, Desired]:
    """Return every node's desired state."""
    tree = tree or rendered(plan)
    return {
        name: desired_of(name, {file.path: (file.mode, file.content) for file in files}, resources.layers())
        for name, files in tree.files.items()
    }


def read(value: T) -> Reading[T]:
    """Wrap a value that was read wholly."""
    return Reading(value, ())


def forwards(count: int) -> Reading[Mapping[str, int]]:
    """Return what the node program reads where the kernel forwarded `count` packets."""
    return counters.snmp(f"Ip: Forwarding ForwDatagrams\nIp: 1 {count}\n")


def live(want: Desired, *, mgmt: str = "192.168.1.11") -> Facts:
    """Return the facts of a node on which everything that `want` says has come about."""
    index = {function.netdev: 10 + i for i, function in enumerate(want.functions)}
    return Facts(
        schema=SCHEMA,
        taken_unix=1_790_000_000,
        took_ms=900,
        functions=tuple(function.netdev for function in want.functions),
        host=Host(want.node, "Ubuntu 24.04", "6.17.0-nvidia", "aarch64", "0" * 64, BOOT, 4000.0, "3.12.3", 0),
        tools={
            name: Tool(f"/usr/sbin/{name}")
            for name in ("ip", "tc", "devlink", "systemctl", "netplan", "nmcli")
        },
        ssh=Ssh("192.168.1.2", mgmt, MGMT),
        interfaces=read(Interfaces(_links(want, index), _addresses(want, mgmt))),
        routes=read(_routes(want)),
        neighbours=read(()),
        sysctls=_sysctls(want),
        snmp=forwards(0),
        tc={function.netdev: _tc(want, function.netdev) for function in want.functions},
        ethtool={
            function.netdev: EthtoolState(
                read({"hw-tc-offload": Feature(True)}), read({"rx_out_of_buffer": 0})
            )
            for function in want.functions
        },
        devlink={function.pci: _devlink(want) for function in want.functions},
        qos={
            function.netdev: QosState(read(Qos("pcp", "os", ())), read(Dcb({})))
            for function in want.functions
        },
        rdma=_rdma(want),
        units=read(_units(want)),
        files=read(_files(want, index)),
        netplan=read({path: file for path, file in _own_files(want).items() if "/netplan/" in path}),
        network_manager=NetworkManager(read(()), read(()), read(())),
        lldp=read(()),
        firewall=read(()),
        libraries={},
        disks={path: Disk(10 << 30, 20 << 30, False) for path in ("/etc", "/run", "/var/lib")},
    )


def _links(want: Desired, index: dict[str, int]) -> tuple[Link, ...]:
    mgmt = Link(MGMT, 2, "4c:bb:47:ff:00:00", mtu=1500, state="UP", flags=("UP", "LOWER_UP"))
    return (
        mgmt,
        *(
            Link(
                function.netdev,
                index[function.netdev],
                function.mac,
                function.mac,
                want.mtu,
                9978,
                "UP",
                ("BROADCAST", "MULTICAST", "UP", "LOWER_UP"),
                function.pci,
                f"p{function.port[-1]}",
            )
            for function in want.functions
        ),
    )


def _addresses(want: Desired, mgmt: str) -> tuple[Address, ...]:
    own = [(f.netdev, IPv4Interface(f.address)) for f in want.functions if f.address]
    return (
        Address(MGMT, "inet", mgmt, 24),
        *(Address(dev, "inet", str(address.ip), address.network.prefixlen) for dev, address in own),
    )


def _routes(want: Desired) -> tuple[Route, ...]:
    return (
        Route("default", MGMT, "192.168.1.1"),
        *(Route(r.to, r.dev, r.via, r.src, "static", metric=100) for r in want.routes),
    )


def _sysctls(want: Desired) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for scope in ("all", "default", *(function.netdev for function in want.functions)):
        for name in (
            "arp_ignore",
            "arp_announce",
            "rp_filter",
            "send_redirects",
            "accept_redirects",
            "forwarding",
        ):
            found[f"net.ipv4.conf.{scope}.{name}"] = "0"
    for setting in want.sysctls:
        found[f"net.ipv4.conf.{setting.scope}.{setting.name}"] = str(setting.value)
    return found


def _tc(want: Desired, netdev: str) -> TcState:
    rules = tuple(
        TcRule(
            dev=rule.dev,
            kind="flower",
            protocol=rule.protocol,
            pref=rule.pref,
            handle=rule.handle,
            chain=0,
            src_mac=rule.src_mac,
            dst_mac=rule.dst_mac,
            set_type=rule.set_type,
            set_dst_mac=rule.set_dst_mac,
            redirect=rule.redirect,
            skip_sw=True,
            in_hw=True,
            in_hw_count=1,
            cookie=rule.cookie,
        )
        for rule in want.rules
        if rule.dev == netdev
    )
    return TcState(read((Qdisc(netdev, "clsact", "ffff:", "ffff:fff1"),)), read(rules))


def _devlink(want: Desired) -> DevlinkState:
    values = {
        "hairpin_queue_size": ("driverinit", str(want.queue_size or 1024)),
        "hairpin_num_queues": ("driverinit", str(want.num_queues or 4)),
        "flow_steering_mode": ("runtime", "hmfs"),
    }
    params = {name: DevlinkParam(name, None, {mode: value}) for name, (mode, value) in values.items()}
    return DevlinkState(
        read(params),
        read(Reloads({"driver_reinit": {"unspecified": 1}}, {}, False)),
        read(Eswitch("legacy")),
        read(DevlinkInfo("mlx5_core", None, {})),
        read(()),
    )


def _rdma(want: Desired) -> RdmaState:
    ports = tuple(
        RdmaPort(
            f.rdma,
            f.netdev,
            f.pci,
            "28.45.4028",
            None,
            "4cbb:4703:0001:0000",
            "4: ACTIVE",
            "5: LinkUp",
            "200",
            "Ethernet",
        )
        for f in want.functions
    )
    gids = tuple(
        Gid(f.rdma, 1, 3, "", "v2", f.netdev, str(IPv4Interface(f.address).ip))
        for f in want.functions
        if f.address
    )
    markers = tuple(
        Marker(500 + i, "fabric-plan-marker", marker.arguments, marker.rdma)
        for i, marker in enumerate(want.markers)
    )
    links = tuple(RdmaLink(f.rdma, 1, "ACTIVE", "LINK_UP", f.netdev) for f in want.functions)
    verbs = tuple(VerbsDevice(f.rdma, {}, {"active_mtu": "4096 (5)"}) for f in want.functions)
    return RdmaState(
        read(ports), read(links), read(verbs), read(gids), read(()), read(()), read(markers), Usage(False, ())
    )


def _units(want: Desired) -> dict[str, Unit]:
    names = {target.rsplit("/", 1)[-1] for _, target in want.links}
    names |= {f"fabric-plan-marker@{marker.rdma}.service" for marker in want.markers}
    return {
        name: Unit(
            "loaded",
            "active",
            "exited",
            "enabled",
            "success",
            0,
            0,
            0,
            9_000_000,
            f"/etc/systemd/system/{name}",
            False,
        )
        for name in names
    }


def _own_files(want: Desired) -> dict[str, File]:
    found = {
        file.path: File("file", file.mode, 0, 0, len(file.content), file.sha256, text=file.content)
        for file in want.files
    }
    return found | {path: File("link", "0777", 0, 0, target=target) for path, target in want.links}


def _files(want: Desired, index: dict[str, int]) -> dict[str, File]:
    notes = {
        f"/run/fabric-plan/hairpin/{f.pci}": f"{BOOT} 0 {want.queue_size} {want.num_queues} "
        f"{index[f.netdev]}\n"
        for f in want.functions
        if want.mesh
    }
    lines = [
        f"{r.dev} {r.pref} {r.handle:#x} {r.cookie} {r.redirect} {index[r.redirect]}" for r in want.rules
    ]
    notes["/run/fabric-plan/rules"] = "\n".join(lines) + "\n"
    texts = {path: File("file", "0644", 0, 0, len(text), "", text=text) for path, text in notes.items()}
    if want.markers:
        texts[MARKER_PROGRAM] = MARKER
    return {path: file for path, file in _own_files(want).items() if "/netplan/" not in path} | texts


def with_file(facts: Facts, path: str, file: File | None) -> Facts:
    """Return `facts` with another file at `path`, or none."""
    reading = facts.netplan if "/netplan/" in path else facts.files
    files = {**(reading.value or {}), path: file}
    kept: Reading[Mapping[str, File]] = read({p: f for p, f in files.items() if f is not None})
    return replace(facts, netplan=kept) if "/netplan/" in path else replace(facts, files=kept)
