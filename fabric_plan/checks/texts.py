"""Every check by its id: its layer, and what ``explain`` says of it. The one place where this stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fabric_plan.checks.model import Layer


@dataclass(frozen=True, slots=True)
class Text:
    """What a check looks at, why that matters, how to mend a finding, and the figure behind it, if any."""

    layer: Layer
    what: str
    why: str
    mend: str
    figure: str = ""


_APPLY = "`fabric-plan apply` puts it back"
_FLOOR = "a healthy function carries about 109 Gb/s one way; 26 and 119 both ways were seen, counters clean"

TEXTS: Mapping[str, Text] = {
    "facts": Text(
        Layer.NODE,
        "the node answers and its facts can be read",
        "nothing can be said of a node that says nothing",
        "reach it by hand over its management address",
    ),
    "boot": Text(
        Layer.NODE,
        "which boot the node is in, and for how long",
        "a proof after a reboot is worth something only if there was one",
        "read /proc/sys/kernel/random/boot_id by hand",
    ),
    "function": Text(
        Layer.LINK,
        "the planned network device is there",
        "without the function its addresses, routes, rules and RDMA device are gone too",
        "look for its PCI address in `lspci` and for the driver in `dmesg`; a reload may still be running",
        "a driver reload takes 4 to 8 s",
    ),
    "identity": Text(
        Layer.LINK,
        "the function is at its planned PCI address and has its planned MAC",
        "rules on the neighbours rewrite to planned MACs: a swapped card receives nothing",
        "put the MAC into the inventory and apply to every node, or put the old card back",
    ),
    "link-up": Text(
        Layer.LINK,
        "the device is set up",
        "a device that is down carries nothing and loses its routes",
        f"`ip link set DEV up`, or {_APPLY}",
    ),
    "carrier": Text(
        Layer.LINK,
        "the device sees its cable",
        "no carrier, no traffic",
        "look at both ends of the cable and at the far node",
    ),
    "mtu": Text(
        Layer.LINK,
        "the MTU is the planned one",
        "with a smaller MTU at one end large frames vanish without a word, and RoCE takes a smaller MTU",
        _APPLY,
        "Ethernet MTU 9000 goes with RoCE MTU 4096",
    ),
    "rdma-port": Text(
        Layer.LINK,
        "the RDMA device is there, belongs to the function and is active",
        "engines open the RDMA device, not the network device",
        "`rdma link show`; is the module mlx5_ib loaded?",
    ),
    "roce-mtu": Text(
        Layer.LINK,
        "the RoCE MTU in effect follows from the Ethernet MTU",
        "a queue pair agrees on the smaller MTU of its two ends",
        "put the Ethernet MTU of both ends right; to read it, install ibverbs-utils",
        "4096 at an Ethernet MTU of 9000",
    ),
    "cable": Text(
        Layer.CABLING,
        "the planned neighbour is at the far end, by LLDP or by the MACs that the kernel learned",
        "a cable in the wrong port has carrier and clean counters",
        "compare the cables with the plan; where it is not proven, `--probe` pings or lldpd tell",
    ),
    "address": Text(
        Layer.ADDRESS,
        "the function has its planned address",
        "without it there is no route, no GID and no answer",
        _APPLY,
    ),
    "address-extra": Text(
        Layer.ADDRESS,
        "the function has no other address",
        "netplan adds addresses up across files, and a second one brings a second GID and route",
        "take it out of the file that brings it: `fabric-plan diff` names conflicting definitions",
    ),
    "gid": Text(
        Layer.GID,
        "the function's RDMA device has a RoCE v2 GID of its address",
        "a queue pair needs it; the index drifts, so it is looked for by address and never by index",
        "it comes with the address; `ip link set DEV down` and `up` makes the kernel fill the table anew",
        "index 3 is usual, 4 was seen on ports that face a rebooted neighbour, 1 with IPv6 off",
    ),
    "route": Text(
        Layer.ROUTE,
        "the route is the planned one: gateway, device, source",
        "RoCE takes its destination MAC from the gateway of the route",
        _APPLY,
    ),
    "route-override": Text(
        Layer.ROUTE,
        "no other route inside the fabric's subnets wins over a planned one",
        "an ICMP redirect or a leftover host route moves traffic to another way",
        "`ip route del` it; accept_redirects=0 and send_redirects=0 keep it away",
        "TCP over the far corner fell to 9 MB/s with redirects on",
    ),
    "sysctl": Text(
        Layer.SYSCTL,
        "the kernel setting in effect is the planned one",
        "the kernel joins `all` with the device, so what counts is the effective value",
        f"`sysctl --system`, or {_APPLY}",
        "20 of 20 resolutions learned the other plane's MAC with the kernel's default ARP settings",
    ),
    "hairpin": Text(
        Layer.DRIVER,
        "hairpin queue size and number are in effect, not only set",
        "devlink shows what is pending; only the driver's table or a reload since proves it",
        "`fabric-plan apply --allow-disruption` reloads the function, or reboot the node",
        "at 1024 entries a burst over about 100 KB overflows, at 8192 it is clean to 480 KB",
    ),
    "offload": Text(
        Layer.DRIVER,
        "hw-tc-offload is on",
        "without it no rule goes into the card",
        f"`ethtool -K DEV hw-tc-offload on`, or {_APPLY}",
    ),
    "eswitch": Text(
        Layer.DRIVER,
        "the embedded switch is in legacy mode",
        "hardware forwarding was qualified in legacy mode alone",
        "`devlink dev eswitch set pci/BDF mode legacy` while nothing runs",
    ),
    "steering": Text(
        Layer.DRIVER,
        "flow steering is hmfs",
        "hardware forwarding was qualified with hmfs alone",
        "`devlink dev param set pci/BDF name flow_steering_mode value hmfs cmode runtime`",
    ),
    "trust": Text(
        Layer.DRIVER,
        "a function that relays trusts PCP, not DSCP",
        "the driver refuses hairpins under DSCP trust",
        "`mlnx_qos -i DEV --trust pcp`",
    ),
    "one-card": Text(
        Layer.DRIVER,
        "the functions of a node are of one card",
        "the driver refuses to redirect between cards",
        "compare sys_image_guid of the RDMA devices",
    ),
    "rule": Text(
        Layer.RULES,
        "the rule is as planned: match, both rewrites, redirect, cookie, skip_sw, in hardware, egress alive",
        "one wrong byte and the frame is dropped, falls to the kernel, or leads to a function that is gone",
        "`systemctl reload fabric-plan-mesh` converges without touching what is right",
    ),
    "rule-peer": Text(
        Layer.RULES,
        "the MACs in the rule are the present MACs of the functions that they mean",
        "a rule that is as planned leads nowhere once the neighbour's card was changed",
        "put the new MAC into the inventory and apply to every node",
    ),
    "rule-extra": Text(
        Layer.RULES,
        "there is no rule of ours that is not planned",
        "a leftover rule takes frames that the plan sends elsewhere",
        "`systemctl reload fabric-plan-mesh` takes it away",
    ),
    "marker": Text(
        Layer.MARKERS,
        "one marker process runs on the device, with the planned arguments",
        "without its tag a frame for a far node goes through the neighbour's kernel; two undo each other",
        "`systemctl restart fabric-plan-marker@DEVICE` while no engine runs",
    ),
    "marker-extra": Text(
        Layer.MARKERS,
        "no marker runs on a device that has none planned",
        "it tags frames that no rule expects",
        "stop it while no engine runs",
    ),
    "unit-enabled": Text(
        Layer.UNITS,
        "the unit is enabled",
        "a unit that is not enabled is missing after the next boot",
        f"`systemctl enable UNIT`, or {_APPLY}",
    ),
    "unit": Text(
        Layer.UNITS,
        "the unit is active",
        "what it does at boot has not been done, or did not work",
        "`journalctl -b -u UNIT` says why; then `systemctl restart UNIT`",
    ),
    "marker-unit": Text(
        Layer.UNITS,
        "the unit of a device's marker is active",
        "it starts the marker again when that dies",
        "`journalctl -b -u UNIT` says why; then `systemctl restart UNIT` while no engine runs",
    ),
    "unit-boot": Text(
        Layer.UNITS,
        "the unit came up in this boot",
        "what an earlier boot left says nothing",
        "`journalctl -b -u UNIT` says why",
    ),
    "unit-stale": Text(
        Layer.UNITS,
        "systemd has read the unit file that is on disk",
        "it goes on with the file that it read before",
        "`systemctl daemon-reload`",
    ),
    "file": Text(
        Layer.FILES,
        "the file is there with the planned content, mode and owner",
        "the next boot follows the file, not what lives now",
        f"{_APPLY}; `fabric-plan diff` shows what differs",
    ),
    "file-extra": Text(
        Layer.FILES,
        "there is no file of ours that is not planned",
        "the next boot would follow it",
        f"{_APPLY}: what is no longer planned goes",
    ),
    "marker-program": Text(
        Layer.FILES,
        "the marker that the inventory pins by its digest is that program",
        "another one may tag other frames, or none, and it runs as root",
        "put the pinned program there and restart its units, or write the digest of this one",
    ),
    "netplan-conflict": Text(
        Layer.CONFLICTS,
        "no other netplan file defines our functions, and none is broken",
        "netplan adds up addresses and routes across files, and one NUL byte stops all of it",
        "`fabric-plan apply --take-over` moves those stanzas away and keeps the originals",
    ),
    "other-mesh": Text(
        Layer.CONFLICTS,
        "no other tool's mesh runs",
        "two meshes replace each other's rules and markers",
        "stop and disable the other one",
    ),
    "subnet-taken": Text(
        Layer.CONFLICTS,
        "no other interface sits in a subnet of the fabric",
        "the kernel would send one of the two wrong",
        "take another addressing.pool",
    ),
    "management": Text(
        Layer.CONFLICTS,
        "the way to the node does not lead over the fabric",
        "whatever changes the fabric would cut it off",
        "reach the node over its management port",
    ),
    "library": Text(
        Layer.LIBRARIES,
        "the NCCL library has the same bytes on every node",
        "ranks with different libraries hang or fail in ways that name something else",
        "install the same build everywhere",
    ),
    "library-mode": Text(
        Layer.LIBRARIES,
        "the NCCL library is of the kind that the plan's environment is written for",
        "NCCL ignores a variable that it does not know, and says nothing",
        "install the other build, or change `nccl: {library: ...}`",
        "lazy trees came with 2.22, subnet-aware routing with 2.30.7",
    ),
    "graph-file": Text(
        Layer.LIBRARIES,
        "NCCL will read the graph file as it is meant",
        "its parser fails, crashes or is silent on what XML allows",
        f"{_APPLY}; `fabric-plan nccl lint FILE` says what NCCL makes of it",
    ),
    "probe": Text(
        Layer.PROBE,
        "the probe could run",
        "without traffic nothing is proven",
        "install perftest and iputils-ping on every node; stop the engine or add --probe-busy",
    ),
    "ping": Text(
        Layer.PROBE,
        "frames of full size pass between the two ends of a cable in one plane",
        "the kernel's own view of link, MTU, address and ARP at once",
        "look at the MTU and the address of both ends",
        "8972 bytes of payload fill an MTU of 9000",
    ),
    "bandwidth": Text(
        Layer.PROBE,
        "RDMA writes over one cable and plane reach the floor of the hardware role",
        "links degrade with every counter clean",
        "reboot both ends of the cable",
        _FLOOR,
    ),
    "latency": Text(
        Layer.PROBE,
        "a small RDMA write over one cable and plane stays under the bound of the hardware role",
        "a slow way is taken, or something else is loaded",
        "look for other traffic, then reboot both ends of the cable",
    ),
    "far": Text(
        Layer.PROBE,
        "RDMA reaches the far node over the planned path",
        "it needs marker, route, rules and the mirrored way back",
        "look at the findings of the nodes on the path",
        "about 10 us at 61 KB through one relay against 8.5 direct",
    ),
    "rule-counter": Text(
        Layer.PROBE,
        "the rules of every relay on the path counted the frames in hardware",
        "in_hw alone proves nothing about RC",
        "look at the marker of the sender and the rules of the relay",
    ),
    "forwarded": Text(
        Layer.PROBE,
        "the kernel of no relay forwarded the probe's frames",
        "frames that were not tagged go through the relay's processor",
        "look at the marker of the sender and the rules of the relay",
        "400 of 400 frames in hardware on each of four paths, and IpForwDatagrams flat (in the lab)",
    ),
    "overflow": Text(
        Layer.PROBE,
        "no receive queue overflowed during the probe",
        "an overflowing hairpin queue is silent but for rx_out_of_buffer on the relay",
        "look at the hairpin values in effect on this node, and at the message size",
        "at 8192 entries a queue is clean to 480 KB, at 1024 a burst over about 100 KB overflows",
    ),
    "sequence": Text(
        Layer.PROBE,
        "no packet arrived out of order or was sent again during the probe",
        "packets that a relay dropped show at the far end, in out_of_sequence and packet_seq_err",
        "look at the relays of the paths that end here",
    ),
    "plane-share": Text(
        Layer.PROBE,
        "each plane carried its share of the probe's bytes",
        "a plane that carries nothing halves the bandwidth in silence",
        "look at the functions of the silent plane",
        "healthy is near half: 49.7 % was measured",
    ),
}
