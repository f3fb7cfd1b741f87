"""Where the tool's own data files are, and the only place that reads them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from fabric_plan.errors import RoleError
from fabric_plan.roles import Hardware, Layer, Meaning, parse_hardware, parse_layer, parse_meanings

if TYPE_CHECKING:
    from fabric_plan.render.templates import Templates

_PACKAGE = Path(__file__).resolve().parent


def data_dir(kind: str) -> Path:
    """Return the directory of ``roles`` or ``templates``: inside an installed wheel, or beside the package in
    a checkout.
    """
    for root in (_PACKAGE / "_data", _PACKAGE.parent):
        if (root / kind).is_dir():
            return root / kind
    raise RoleError(f"the directory {kind}/ is missing", where=str(_PACKAGE), hint="reinstall fabric-plan")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise RoleError(
            f"cannot read {path.name}: {error.strerror}", where=str(path), hint="reinstall fabric-plan"
        ) from None


@cache
def hardware_roles() -> dict[str, Hardware]:
    """Return every hardware role by name."""
    files = sorted((data_dir("roles") / "hardware").glob("*.yaml"))
    return {path.stem: parse_hardware(_read(path), path.name) for path in files}


@cache
def layers() -> tuple[Layer, ...]:
    """Return every layer of files, in the order in which they are applied."""
    files = sorted((data_dir("roles") / "layers").glob("*.yaml"))
    return tuple(
        sorted((parse_layer(_read(path), path.name) for path in files), key=lambda layer: layer.order)
    )


@cache
def meanings() -> dict[str, dict[str, Meaning]]:
    """Return what every id means, by area (the files of ``roles/explain``)."""
    files = sorted((data_dir("roles") / "explain").glob("*.yaml"))
    return {path.stem: parse_meanings(_read(path), path.name) for path in files}


@cache
def _template(name: str) -> str:
    return _read(data_dir("templates") / name)


@cache
def templates() -> Templates:
    """Return the templates, with what Jinja2 compiled of them before."""
    from fabric_plan.compiled import compiled_templates
    from fabric_plan.render.templates import Templates

    return Templates(_template, compiled_templates())
