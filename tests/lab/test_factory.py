"""A node as it comes up: the hardware and the factory state that the lab promises."""

from __future__ import annotations

import json
import subprocess

import pytest

from lab.driver import Lab
from lab.spec import End, Renderer
from tests.lab.traffic import ORDERING_CYCLES


def test_hardware_is_the_inventorys(factory: Lab) -> None:
    links = factory.each(lambda name: json.loads(factory.out(name, "ip -j link show")))
    rdma = factory.each(lambda name: json.loads(factory.out(name, "rdma -j link show")))
    ports = factory.each(lambda name: json.loads(factory.out(name, "devlink -j port show"))["port"])
    for node in factory.spec.nodes:
        macs = {link["ifname"]: link["address"] for link in links[node.name] if link["ifname"] != "lo"}
        assert macs == {node.mgmt.netdev: node.mgmt.mac} | {f.netdev: f.mac for f in node.functions}
        devices = {link["ifname"]: link["netdev"] for link in rdma[node.name]}
        assert devices == {f.rdma: f.netdev for f in node.functions}
        found = {handle.rpartition("/")[0]: port["netdev"] for handle, port in ports[node.name].items()}
        assert found == {f"pci/{f.pci}": f.netdev for f in node.functions}


def test_identity_as_user_space_reads_it(factory: Lab) -> None:
    node = factory.spec.nodes[0]
    script = """
    for dev in $1; do
        card=/sys/class/net/$dev/device
        echo $(basename $(readlink $card)) $(basename $(readlink $card/driver)) \\
             $(cat /sys/class/net/$dev/phys_port_name) $(cat $card/vendor)
    done; cat /sys/class/infiniband/*/sys_image_guid | sort -u | wc -l
    """
    devices = " ".join(f.netdev for f in node.functions)
    *rows, guids = factory.out(node.name, f"set -- '{devices}'; {script}").splitlines()
    assert rows == [f"{f.pci} mlx5_core p{f.port[1:]} 0x15b3" for f in node.functions]
    assert guids == "1"


def test_driver_values_are_the_drivers_defaults(factory: Lab) -> None:
    name = factory.names[0]
    params = json.loads(factory.out(name, "devlink -j dev param show"))["param"]
    for function in factory.spec.nodes[0].functions:
        values = {param["name"]: param["values"][0] for param in params[f"pci/{function.pci}"]}
        assert values["hairpin_num_queues"] == {"cmode": "driverinit", "value": 4}
        assert values["hairpin_queue_size"] == {"cmode": "driverinit", "value": 1024}
        assert values["flow_steering_mode"] == {"cmode": "runtime", "value": "hmfs"}
    eswitch = factory.out(name, f"devlink dev eswitch show pci/{factory.spec.nodes[0].functions[0].pci}")
    assert "mode legacy" in eswitch
    assert "hw-tc-offload: on" in factory.out(name, f"ethtool -k {factory.spec.nodes[0].functions[0].netdev}")


def test_every_cable_has_its_link_and_a_port_without_one_has_none(factory: Lab) -> None:
    for node in factory.spec.nodes:
        carriers = " && ".join(
            f"test $(cat /sys/class/net/{f.netdev}/carrier) = "
            f"{int(factory.spec.far_end(End(node.name, f.port)) is not None)}"
            for f in node.functions
        )
        factory.wait(node.name, "carrier where a cable is", carriers)


def test_boot_is_whole_and_without_an_ordering_cycle(factory: Lab) -> None:
    def look(name: str) -> None:
        assert factory.out(name, "systemctl --failed --no-legend --plain") == ""
        assert factory.out(name, ORDERING_CYCLES) == ""
        assert factory.out(name, "systemctl is-active cloud-init-local cloud-final").split() == ["active"] * 2

    factory.each(look)


def test_factory_state(factory: Lab) -> None:
    for node in factory.spec.nodes:
        netplan = factory.out(node.name, "ls /etc/netplan").split()
        manager = factory.out(node.name, f"nmcli -g GENERAL.STATE device show {node.mgmt.netdev}")
        if node.mgmt.renderer is Renderer.NETWORKD:
            assert netplan == ["50-cloud-init.yaml"]
            assert "unmanaged" in manager
            assert "routable" in factory.out(node.name, f"networkctl status {node.mgmt.netdev} --no-pager")
        else:
            assert [n[:6] for n in netplan] == ["01-net", "90-NM-"]
            assert "(connected)" in manager
        states = factory.out(node.name, "nmcli -t -f DEVICE,STATE device").splitlines()
        for function in node.functions:
            # DHCP that nobody answers: NetworkManager owns the port and keeps trying
            state = next(s for s in states if s.startswith(f"{function.netdev}:"))
            assert "unmanaged" not in state
        policy = factory.ssh(node.name, "iptables -S FORWARD | head -1", check=False).out.strip()
        assert policy == f"-P FORWARD {'DROP' if node.docker else 'ACCEPT'}"


def test_all_nodes_share_the_management_lan(factory: Lab) -> None:
    addresses = [node.mgmt.ip for node in factory.spec.nodes]
    command = " && ".join(f"ping -n -q -c 1 -W 10 {address}" for address in addresses)
    factory.each(lambda name: factory.ssh(name, command))


def test_host_keys_are_checked_and_distinct(factory: Lab) -> None:
    first, second = factory.machine(factory.names[0]), factory.machine(factory.names[1])
    keys = (factory.run_dir / "known_hosts").read_text().splitlines()
    assert len({line.split()[-1] for line in keys}) == len(factory.names)
    argv = [
        "ssh",
        "-F",
        str(factory.run_dir / "ssh_config"),
        "-o",
        f"HostKeyAlias=[127.0.0.1]:{second.ssh_port}",
    ]
    wrong = subprocess.run([*argv, first.node.name, "true"], capture_output=True, text=True, timeout=120)
    assert wrong.returncode == 255 and "verification failed" in wrong.stderr.lower()


@pytest.mark.parametrize(("user", "code"), [("nvidia", 0), ("maint", 1)])
def test_ordinary_users(factory: Lab, user: str, code: int) -> None:
    name = factory.names[0]
    assert factory.out(name, "id -un", user=user) == user
    assert factory.ssh(name, "sudo -n true", user=user, check=False).code == code
