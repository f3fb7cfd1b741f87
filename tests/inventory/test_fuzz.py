"""Two thousand broken inventories: an error that a person can read, or a plan that proves; never anything
else.
"""

from __future__ import annotations

import random
from collections import Counter

from fabric_plan.errors import FabricPlanError
from fabric_plan.inventory.load import load
from fabric_plan.planner.plan import plan_fabric
from fabric_plan.resources import hardware_roles
from fabric_plan.simulate.prove import prove
from tests.golden_trees import ROOT

ROUNDS = 2000
_WORDS = (
    *(
        "f0",
        "f1",
        "f2",
        "spark1",
        "spark9",
        "null",
        "~",
        "true",
        "0",
        "-1",
        "1e9",
        "[]",
        "{}",
        "''",
        "9000",
        "ring",
    ),
    *(
        "10.10.0.0/24",
        "10.10.0.0/31",
        "0.0.0.0/0",
        "!!binary x",
        "&a",
        "*a",
        "<<",
        "? x",
        "'",
        '"',
        "\t",
        "\0",
        "é",
    ),
    *(
        "universal",
        "opposite",
        "balanced",
        "off",
        "unmanaged",
        "2026-11-29",
        "1:2:3",
        "0x10",
        ".inf",
        "name",
        "ends",
    ),
)


def _garbled(rng: random.Random, text: str) -> str:
    lines = text.splitlines(keepends=True)
    for _ in range(rng.randint(1, 2)):
        i = rng.randrange(len(lines))
        line = lines[i]
        words = line.replace("[", " [ ").replace(",", " , ").split(" ")
        match rng.randrange(7):
            case 0:
                lines[i] = ""
            case 1:
                lines[i] = line + line
            case 2:
                cut = rng.randrange(len(line) + 1)
                lines[i] = line[:cut] + rng.choice(_WORDS) + line[cut:]
            case 3:
                j = rng.randrange(len(words))
                lines[i] = line.replace(words[j], rng.choice(_WORDS), 1) if words[j] else line
            case 4:
                lines[i] = line[: rng.randrange(len(line) + 1)]
            case 5:
                j = rng.randrange(len(lines))
                lines[i], lines[j] = lines[j], lines[i]
            case _:
                lines[i] = " " * rng.randrange(4) + line
    return "".join(lines)


def _refused(text: str) -> list[str]:
    """Return the lines of the refusal; none where the text plans, and then the plan proves."""
    try:
        loaded = load(text, "fuzz.yaml", hardware_roles())
        plan = plan_fabric(loaded.fabric, loaded.notices)
    except FabricPlanError as error:
        return error.lines()
    assert prove(plan).ok, text
    return []


def test_garbled_inventories_never_crash() -> None:
    rng = random.Random(20261129)  # a fixed seed, so that a failure can be repeated
    sources = [path.read_text() for path in sorted((ROOT / "inventories").glob("*.yaml"))]
    sources += [
        path.read_text() for path in sorted((ROOT / "tests/cases/bad-inventory").glob("[0-2][0-9]*.yaml"))
    ]
    sources = [text for text in sources if text]
    outcomes: Counter[str] = Counter()
    for _ in range(ROUNDS):
        text = _garbled(rng, rng.choice(sources))
        lines = _refused(text)
        assert all(line.isprintable() for line in lines), lines
        outcomes["refused" if lines else "planned"] += 1
    assert sum(outcomes.values()) == ROUNDS
    assert min(outcomes["planned"], outcomes["refused"]) >= ROUNDS // 100
