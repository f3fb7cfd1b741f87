"""Several nodes behind one loopback address: told apart by their SSH ports, and only there."""

from __future__ import annotations

import pytest

from fabric_plan.errors import InventoryError
from fabric_plan.inventory.load import load
from fabric_plan.resources import hardware_roles

PAIR = """\
nodes:
  - {{name: a, mgmt: {0}, ssh: {{port: {1}}}}}
  - {{name: b, mgmt: {2}, ssh: {{port: {3}}}}}
cables:
  - ends: [a.f0, b.f1]
"""


def read(*values: object) -> None:
    load(PAIR.format(*values).encode(), "pair.yaml", hardware_roles())


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.9", '"::1"'])
def test_loopback_addresses_repeat_with_other_ports(address: str) -> None:
    read(address, 2201, address, 2202)


@pytest.mark.parametrize(
    ("address", "first", "second"), [("127.0.0.1", 2201, 2201), ("192.168.1.11", 2201, 2202)]
)
def test_one_place_is_one_node(address: str, first: int, second: int) -> None:
    with pytest.raises(InventoryError, match=r"management address `.*` is used twice"):
        read(address, first, address, second)
