"""Network namespaces without a name, and the plan's links, addresses, routes and kernel settings in them.

A namespace here is held by a file descriptor of this process and by nothing else: no entry under
/run/netns that others could guess, meet or be left with. Whatever ends the process, a kill included, takes
the namespaces, their links and their routes away with it. None of them has a link to the host's own
namespace.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fabric_plan.errors import FabricPlanError
from fabric_plan.planner.model import NodePlan, Plan, PlannedFunction
from fabric_plan.planner.sysctl import sysctls
from fabric_plan.topology.fabric import Cable, End

_CLONE_NEWNET = 0x40000000
_OWN = "/proc/self/ns/net"

# What a kernel starts with. A new namespace takes these over from the host instead, where somebody may have
# set anything, so they are put back before the plan's own settings.
_KERNEL_DEFAULTS = {
    "forwarding": 0,
    "arp_ignore": 0,
    "arp_announce": 0,
    "rp_filter": 0,
    "send_redirects": 1,
    "accept_redirects": 1,
}


class Namespaces:
    """One namespace a node and one for the cables. Enter it as a context: leaving it takes everything away.

    Only the calling thread moves between namespaces, and it is back in its own one whenever a method returns.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._held: dict[str, int] = {}
        self._home = -1

    def __enter__(self) -> Namespaces:
        """Build the fabric. Raises `FabricPlanError` where the kernel refuses something."""
        try:
            self._home = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of every namespace; the kernel removes what is in them."""
        if self._home >= 0:
            os.close(self._home)
            self._home = -1
        while self._held:
            os.close(self._held.popitem()[1])

    @contextmanager
    def inside(self, node: str) -> Iterator[None]:
        """Run the body in the namespace of `node`; sockets opened there stay there."""
        try:
            self._move(self._held[node])
            yield
        finally:
            self._move(self._home)

    def neighbours(self, node: str) -> dict[str, tuple[str, str]]:
        """Return what `node` has learned by ARP: MAC and device by address."""
        with self.inside(node), _route_socket() as ip:
            names = {link["index"]: link.get("ifname") for link in ip.get_links()}
            return {
                entry.get("dst"): (entry.get("lladdr"), names[entry["ifindex"]])
                for entry in ip.get_neighbours(family=2)
                if entry.get("lladdr")
            }

    def macs(self, node: str) -> dict[str, str]:
        """Return the MAC of every link of `node`: the planned one, or the kernel's own choice."""
        with self.inside(node), _route_socket() as ip:
            return {link.get("ifname"): link.get("address") for link in ip.get_links()}

    def _move(self, namespace: int) -> None:
        if self._libc.setns(namespace, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def _create(self, name: str) -> None:
        if self._libc.unshare(_CLONE_NEWNET):
            code = ctypes.get_errno()
            raise FabricPlanError(
                f"cannot make a network namespace: {os.strerror(code)}",
                hint="run it as root" if code == errno.EPERM else None,
            )
        try:
            self._held[name] = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
        finally:
            self._move(self._home)
        with self.inside(name):
            _quiet()

    def _build(self) -> None:
        self._create("")  # no node is called so
        for node in self._plan.nodes:
            self._create(node.name)
        with self.inside(""), _route_socket() as ip:
            for cable in self._plan.fabric.cables:
                self._plug(ip, cable)
        for node in self._plan.nodes:
            with self.inside(node.name), _route_socket() as ip:
                self._configure(ip, node)

    def _plug(self, ip: Any, cable: Cable) -> None:
        """Make one cable: a bridge that every function of its ends hears, as on the wire."""
        bridge = f"cable{cable.index}"
        ip.link("add", ifname=bridge, kind="bridge", br_mcast_snooping=0)
        index = ip.link_lookup(ifname=bridge)[0]
        for i, end in enumerate(cable.ends):
            for function in self._functions(end):
                name = f"c{cable.index}e{i}p{function.function.plane}"
                peer = {"ifname": function.function.netdev, "net_ns_fd": self._held[end.node]}
                if function.function.mac is not None:
                    peer["address"] = function.function.mac
                ip.link("add", ifname=name, kind="veth", peer=peer)
                port = ip.link_lookup(ifname=name)[0]
                ip.link("set", index=port, mtu=self._plan.fabric.mtu, master=index, state="up")
        ip.link("set", index=index, mtu=self._plan.fabric.mtu, state="up")

    def _functions(self, end: End) -> list[PlannedFunction]:
        """Return the functions of a port that the inventory's planes name; a cable carries all of them."""
        planes = self._plan.fabric.planes
        node = self._plan.node(end.node)
        return [f for f in node.functions if f.function.port == end.port and f.function.plane in planes]

    def _configure(self, ip: Any, node: NodePlan) -> None:
        index = {link.get("ifname"): link["index"] for link in ip.get_links()}
        ip.link("set", index=index["lo"], state="up")
        for setting in sysctls(self._plan, node):
            if setting.scope in ("all", "default", *index):
                _write_setting(setting.scope, setting.name, setting.value)
        for planned in node.functions:
            link = index.get(planned.function.netdev)
            if link is None:
                continue
            if not planned.managed:
                # What the plan asks of whoever manages that plane; without it the twin answers ARP for ours.
                _write_setting(planned.function.netdev, "arp_ignore", 1)
            ip.link("set", index=link, mtu=self._plan.fabric.mtu, state="up")
            if planned.address is not None:
                ip.addr(
                    "add",
                    index=link,
                    address=str(planned.address.ip),
                    prefixlen=planned.address.network.prefixlen,
                )
        for route in node.kernel_routes:
            self._route(ip, node, index, dst=str(route.to), gateway=str(route.via), dev=route.dev)
        for relay in node.relay_routes:
            self._route(
                ip, node, index, dst=str(relay.to), gateway=str(relay.via), dev=relay.dev, src=str(relay.src)
            )

    def _route(
        self,
        ip: Any,
        node: NodePlan,
        index: dict[str, int],
        *,
        dst: str,
        gateway: str,
        dev: str,
        src: str = "",
    ) -> None:
        from pyroute2.netlink.exceptions import NetlinkError

        source = {"prefsrc": src} if src else {}
        try:
            ip.route("add", dst=dst, gateway=gateway, oif=index[dev], **source)
        except (NetlinkError, KeyError) as error:
            why = f"there is no {dev}" if isinstance(error, KeyError) else os.strerror(error.code)
            raise FabricPlanError(
                f"the kernel refuses the route to {dst} via {gateway} dev {dev}: {why}",
                where=node.name,
                hint="`fabric-plan prove` without --netns names what is wrong with it",
            ) from None


def _route_socket() -> Any:
    from pyroute2 import IPRoute

    return IPRoute()


def _quiet() -> None:
    """Give this thread's namespace a kernel's own defaults, and no IPv6: nothing there speaks unless asked
    to.
    """
    _write(Path("/proc/sys/net/ipv4/ip_forward"), 0)
    for scope in ("all", "default"):
        for name, value in _KERNEL_DEFAULTS.items():
            _write_setting(scope, name, value)
        no_ipv6 = Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6")
        if no_ipv6.exists():
            _write(no_ipv6, 1)


def _write_setting(scope: str, name: str, value: int) -> None:
    _write(Path("/proc/sys/net/ipv4/conf") / scope / name, value)


def _write(path: Path, value: int) -> None:
    try:
        path.write_text(f"{value}\n", encoding="ascii")
    except OSError as error:
        raise FabricPlanError(
            f"cannot set {path}: {error.strerror}", hint="run it as root, where /proc/sys can be written"
        ) from None
