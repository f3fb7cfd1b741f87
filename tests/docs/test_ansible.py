"""The Ansible example: Ansible reads it, and what it runs is a command line of ours."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from fabric_plan.apply.ends import End
from fabric_plan.cli.main import parser
from tests.golden_trees import ROOT

FOLDER = ROOT / "examples" / "ansible"
PLAYBOOK: list[dict[str, Any]] = yaml.safe_load((FOLDER / "playbook.yaml").read_text())
ANSIBLE = shutil.which("ansible-playbook")


def words(text: str, names: dict[str, str]) -> str:
    """Return a text with its variables filled in; filters are what this playbook uses them for."""
    for name, value in names.items():
        text = text.replace(f"{{{{ {name} }}}}", value).replace(f"{{{{ {name} | basename }}}}", value)
    assert "{{" not in text, text
    return text


def commands() -> Iterator[list[str]]:
    """Yield every command of ours in the playbook, as it would run on spark2."""
    for play in PLAYBOOK:
        names = {**{name: str(value) for name, value in play["vars"].items()}, "inventory_hostname": "spark2"}
        for task in play["tasks"]:
            argv = task.get("ansible.builtin.command", {}).get("argv")
            if argv is not None:
                line = argv if isinstance(argv, list) else [*task["vars"]["words"], "--allow-disruption"]
                yield [words(word, names) for word in line]


def test_every_command_is_one_of_ours() -> None:
    found = list(commands())
    for line in found:
        assert line[0].endswith("fabric-plan")
        options = parser(line[1]).parse_args(line[1:])
        assert options.inventory.endswith("home.yaml")
    assert [line[1] for line in found] == ["apply", "verify"]


def test_apply_runs_on_the_node_itself_and_asks_nobody() -> None:
    line = next(commands())
    options = parser("apply").parse_args(line[1:])
    assert (options.local, options.node, options.yes, options.json) == (True, ["spark2"], True, True)
    assert options.allow_disruption
    assert PLAYBOOK[0]["vars"]["disrupt"] is False


def test_unchanged_is_the_word_that_a_report_uses() -> None:
    (task,) = (task for task in PLAYBOOK[0]["tasks"] if task.get("register") == "applied")
    assert task["changed_when"].endswith(f".end != '{End.UNCHANGED}'")


def test_the_tools_own_directory_is_left_alone() -> None:
    assert not PLAYBOOK[0]["vars"]["place"].startswith(("/etc/fabric-plan", "/usr/local/lib/fabric-plan"))


@pytest.mark.skipif(ANSIBLE is None, reason="ansible-playbook is not installed (pip install ansible-core)")
def test_ansible_reads_it() -> None:
    argv = [ANSIBLE or "", "-i", "hosts.ini", "playbook.yaml", "--syntax-check"]
    done = subprocess.run(argv, cwd=FOLDER, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr
