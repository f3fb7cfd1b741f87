"""Which parser reads which sample. A sample that no parser claims is a failure of `test_parsers`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from fabric_plan.node.parsers import (
    counters,
    devlink,
    ethtool,
    ip_json,
    ip_text,
    lldp,
    messages,
    names,
    netplan,
    network_manager,
    perftest,
    qos,
    rdma,
    tc,
)
from fabric_plan.node.reading import Reading

SAMPLES = Path(__file__).parents[1] / "samples"

Parser = Callable[[str], Reading[Any]]

filters = partial(tc.filters, dev="enp1s0f0np0")
qdiscs = partial(tc.qdiscs, dev="enp1s0f0np0")

# None: no tool's output, so nothing to parse (an explanation, a script, the definition files that are carried
# to the controller as they are).
CLAIMS: dict[str, Parser | None] = {
    "README.md": None,
    "devlink-dev-eswitch-show.json": devlink.eswitch,
    "devlink-dev-info.json": devlink.info,
    "devlink-dev-param-show.json": devlink.params,
    "devlink-dev-show-s.json": devlink.reloads,
    "devlink-port-show.json": devlink.ports,
    "errors-from-the-kernel.txt": messages.messages,
    "ethtool-S.txt": ethtool.counters,
    "ethtool-k.json": ethtool.features,
    "ip-addr-show-d.json": ip_json.interfaces,
    "ip-neigh-show.json": ip_json.neighbours,
    "ip-route-show.json": ip_json.routes,
    "netplan-trial-in-run.sh": None,
    "netplan-trial-in-run.txt": ip_text.routes,
    "nmcli-dev-status.txt": network_manager.devices,
    "proc-net-snmp.txt": counters.snmp,
    "rdma-dev-show.json": rdma.devices,
    "rdma-link-show.json": rdma.links,
    "rdma-resource-show-qp.json": rdma.queue_pairs,
    "tc-cookie-and-devlink-reload.txt": filters,
    "tc-filter-show-s.json": filters,
    "tc-qdisc-show.json": qdiscs,
    "hardware/README.md": None,
    "hardware/dcb-1.txt": qos.dcb,
    "hardware/dcb-2.txt": qos.dcb,
    "hardware/devlink-err-1.txt": messages.messages,
    "hardware/devlink-eswitch-1.txt": devlink.eswitch,
    "hardware/devlink-eswitch-2.txt": devlink.eswitch,
    "hardware/devlink-info-1.txt": devlink.info,
    "hardware/devlink-info-2.txt": devlink.info,
    "hardware/devlink-param-1.txt": devlink.params,
    "hardware/devlink-param-2.txt": devlink.params,
    "hardware/devlink-param-4.json": devlink.params,
    "hardware/devlink-stats-1.txt": devlink.reloads,
    "hardware/devlink-stats-2.json": devlink.reloads,
    "hardware/ethtool-S-1.txt": ethtool.counters,
    "hardware/ethtool-S-2.txt": ethtool.counters,
    "hardware/ethtool-S-3.txt": ethtool.counters,
    "hardware/ethtool-k-1.txt": ethtool.features,
    "hardware/hw-counters-1.txt": counters.hw_counters,
    "hardware/hw-counters-2.txt": counters.hw_counters,
    "hardware/ib_read_lat-1.txt": perftest.results,
    "hardware/ib_write_bw-1.txt": perftest.results,
    "hardware/ib_write_bw-2.txt": perftest.results,
    "hardware/ib_write_bw-4.txt": perftest.results,
    "hardware/ib_write_bw-5.txt": perftest.results,
    "hardware/ib_write_lat-1.txt": perftest.results,
    "hardware/ibdev2netdev-1.txt": names.ibdev2netdev,
    "hardware/ibdev2netdev-2.txt": names.ibdev2netdev,
    "hardware/ibv_devinfo-1.txt": names.ibv_devinfo,
    "hardware/ibv_devinfo-2.txt": names.ibv_devinfo,
    "hardware/ip-addr-1.txt": ip_text.interfaces,
    "hardware/ip-br-addr-1.txt": ip_text.brief_addresses,
    "hardware/ip-br-addr-2.txt": ip_text.brief_addresses,
    "hardware/ip-br-link-1.txt": ip_text.brief_links,
    "hardware/ip-d-addr-1.json": ip_json.interfaces,
    "hardware/ip-route-1.json": ip_json.routes,
    "hardware/ip-route-2.json": ip_json.routes,
    "hardware/lldp-1.json": lldp.neighbours,
    "hardware/mlnx_qos-1.txt": qos.mlnx_qos,
    "hardware/mlnx_qos-2.txt": qos.mlnx_qos,
    "hardware/netplan-40-cx7-1.txt": None,
    "hardware/netplan-40-cx7-2.txt": None,
    "hardware/netplan-status-1.txt": netplan.status,
    "hardware/nmcli-con-1.txt": network_manager.connections,
    "hardware/nmcli-dev-1.txt": network_manager.devices,
    "hardware/nstat-1.txt": counters.nstat,
    "hardware/proc-net-snmp-1.txt": counters.snmp,
    "hardware/rdma-dev-1.txt": rdma.devices,
    "hardware/rdma-dev-2.txt": rdma.devices,
    "hardware/rdma-link-1.txt": rdma.links,
    "hardware/rdma-link-2.txt": rdma.links,
    "hardware/rdma-qp-1.txt": rdma.queue_pairs,
    "hardware/rdma-qp-2.txt": rdma.queue_pairs,
    "hardware/show_gids-1.txt": names.show_gids,
    "hardware/show_gids-2.txt": names.show_gids,
    "hardware/tc-1.txt": filters,
    "hardware/tc-10.json": filters,
    "hardware/tc-2.txt": filters,
    "hardware/tc-3.txt": filters,
    "hardware/tc-4.txt": filters,
    "hardware/tc-6.txt": filters,
    "hardware/tc-8.json": filters,
    "hardware/tc-9.json": filters,
}
