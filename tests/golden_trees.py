"""The golden trees: what is rendered, kept under review. ``make golden`` rewrites them after a change that is
meant.

Of the fabrics in `WHOLE` every file stands there; of the other examples plan.json alone, which carries the
digest of each file.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from fabric_plan import resources
from fabric_plan.inventory.load import load
from fabric_plan.planner.plan import plan_fabric
from fabric_plan.render.document import dump
from fabric_plan.render.output import plan_document
from fabric_plan.render.tree import render
from fabric_plan.simulate.prove import prove

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "tests" / "golden"
WHOLE = ("ring4", "pair")


def examples() -> dict[str, Path]:
    """Return the inventories that have a golden tree, by name."""
    return {path.stem: path for path in sorted((ROOT / "inventories").glob("*.yaml"))}


def rendered(path: Path) -> Mapping[str, str]:
    """Return the rendered tree of one inventory: content by relative path."""
    loaded = load(path.read_bytes(), path.name, resources.hardware_roles())
    plan = plan_fabric(loaded.fabric, loaded.notices)
    tree = render(plan, resources.layers(), resources.templates())
    files = {"plan.json": dump(plan_document(plan, tree, prove(plan)))}
    if path.stem in WHOLE:
        files |= {f"{node}{file.path}": file.content for node, part in tree.files.items() for file in part}
    return files


def main() -> None:
    """Write every golden tree anew."""
    for name, path in examples().items():
        shutil.rmtree(GOLDEN / name, ignore_errors=True)
        for relative, content in rendered(path).items():
            target = GOLDEN / name / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(content)


if __name__ == "__main__":
    main()
