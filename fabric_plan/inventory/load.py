"""From the text of an inventory to a `Fabric`, or to every reason why not, with its place in the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fabric_plan.errors import FabricPlanError, InventoryError
from fabric_plan.findings import Notice
from fabric_plan.inventory.checks import check
from fabric_plan.inventory.parts import Problem, node_hardware, segments, split_end, suggest
from fabric_plan.inventory.schema import CableEntry, FunctionEntry, Inventory, NodeEntry, RailEntry
from fabric_plan.inventory.source import Document, Path, Reread, parse_yaml
from fabric_plan.roles import Hardwares, RoleFunction
from fabric_plan.topology.fabric import Cable, End, Fabric, Function, Node, Pin


@dataclass(frozen=True, slots=True)
class Loaded:
    """A sound inventory: the fabric that it declares, and what was noticed on the way."""

    fabric: Fabric
    inventory: Inventory
    notices: tuple[Notice, ...]


def load(text: str | bytes, name: str, roles: Hardwares) -> Loaded:
    """Load the inventory `text` of the file `name`, completing nodes from `roles`.

    Raises `InventoryError` carrying every finding of the file.
    """
    document = parse_yaml(text, name)
    if not isinstance(document.data, dict):
        raise InventoryError([_not_a_mapping(document, text)])
    inventory, problems = _validate(document)
    if inventory is not None:
        problems += check(inventory, roles)
    refused = [_error(document, problem) for problem in problems if problem.refuse]
    if refused or inventory is None:
        raise InventoryError(_in_file_order(refused))
    notices = tuple(
        Notice(problem.id, problem.message, _where(document, problem), problem.hint)
        for problem in problems
        if not problem.refuse
    )
    stem = name.rsplit("/", 1)[-1].rsplit(".", 1)[0]
    return Loaded(_fabric(inventory, roles, stem), inventory, notices)


def _not_a_mapping(document: Document, text: str | bytes) -> FabricPlanError:
    shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    line = next(
        (line for line in shown.splitlines() if line.strip() and not line.lstrip().startswith("#")), ""
    )
    kind = "a list" if isinstance(document.data, list) else "a single value"
    return FabricPlanError(
        f"the top level must be a mapping (nodes:, cables:, ..), this file is {kind}; it starts "
        f"with `{line[:40]}`",
        where=f"{document.name}:1:1",
        hint="take the leading `- ` away and write keys: nodes:, cables:",
        id="not-a-mapping",
    )


def _in_file_order(errors: list[FabricPlanError]) -> list[FabricPlanError]:
    def place(error: FabricPlanError) -> tuple[int, int]:
        line, _, column = (error.where or "").rpartition(":")
        number = line.rpartition(":")[2]
        return (int(number), int(column)) if number.isdigit() and column.isdigit() else (0, 0)

    return sorted(errors, key=place)


def _validate(document: Document) -> tuple[Inventory | None, list[Problem]]:
    """Validate; where optional fields are wrong, go on without them, so that one run shows everything."""
    try:
        return Inventory.model_validate(document.data), []
    except ValidationError as error:
        details = error.errors(include_url=False)
    problems = [_problem(document, detail) for detail in details]
    pruned = _pruned(document.data, [_locate(document, detail["loc"]) for detail in details])
    try:
        return Inventory.model_validate(pruned), problems
    except ValidationError:
        return None, problems


def _pruned(data: Any, paths: list[Path]) -> Any:
    """Return a copy of `data` without the mapping entries at `paths`; list items stay, since their position
    means something.
    """
    drop = set(paths)

    def copy(value: Any, path: Path) -> Any:
        if isinstance(value, dict):
            return {k: copy(v, (*path, k)) for k, v in value.items() if (*path, k) not in drop}
        if isinstance(value, list):
            return [copy(v, (*path, i)) for i, v in enumerate(value)]
        return value

    return copy(data, ())


def _locate(document: Document, loc: tuple[str | int, ...]) -> Path:
    """Map pydantic's location to the source's: a port written as a mapping has no list index there, `mesh: x`
    no key.
    """
    path: Path = ()
    for part in loc:
        if (*path, part) in document.values or (*path, part) in document.keys:
            path = (*path, part)
    return path


def _name(document: Document, path: Path) -> str:
    """Write a path as people do: nodes by their name, list items by index."""
    words, rest = "", path
    if len(path) >= 2 and path[0] == "nodes" and isinstance(path[1], int):
        try:
            entry = document.data["nodes"][path[1]]
            words = f"{entry['name']} " if isinstance(entry.get("name"), str) else f"nodes[{path[1]}] "
        except (AttributeError, KeyError, TypeError, IndexError):
            words = f"nodes[{path[1]}] "
        rest = path[2:]
    dotted = ""
    for part in rest:
        dotted += f"[{part}]" if isinstance(part, int) else f".{part}" if dotted else str(part)
    return (words + dotted).strip() or "the file"


def _schema_keys(loc: tuple[str | int, ...]) -> list[str]:
    """Return the keys that are known where `loc` ends: what a misspelling could have meant."""
    models: Mapping[tuple[str, ...], type[BaseModel]] = {
        ("nodes", "ports"): FunctionEntry,
        ("nodes",): NodeEntry,
        ("cables",): CableEntry,
        ("rails",): RailEntry,
        (): Inventory,
    }
    keys = [part for part in loc[:-1] if isinstance(part, str)]
    for prefix, model in models.items():
        if tuple(keys[: len(prefix)]) == prefix:
            current: type[BaseModel] = model
            for key in keys[len(prefix) :]:
                field = current.model_fields.get(key)
                inner = _model_in(field.annotation) if field else None
                current = inner or current
            return list(current.model_fields)
    return []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        if found := _model_in(inner):
            return found
    return None


_KINDS = {
    bool: "the truth value",
    int: "the number",
    float: "the number",
    dict: "a mapping",
    list: "a list",
    str: "the text",
}
_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "bool_type": "true or false",
    "enum": "",
}


def _problem(document: Document, detail: ErrorDetails) -> Problem:
    """Turn one of pydantic's findings into words for a person who has never heard of pydantic."""
    path = _locate(document, detail["loc"])
    name, kind, value = _name(document, path), detail["type"], detail["input"]
    if kind == "extra_forbidden":
        key = str(detail["loc"][-1])
        known = _schema_keys(detail["loc"])
        close = suggest(key, known)
        parent = _name(document, path[:-1])
        return Problem(
            path,
            "unknown-key",
            f"unknown key `{key}` in {parent}" + (f": did you mean `{close}`?" if close else ""),
            None if close else f"known here: {', '.join(known)}",
            key=True,
        )
    if kind == "missing":
        key = str(detail["loc"][-1])
        return Problem(path, "missing-key", f"{name}: key `{key}` is missing")
    if kind == "string_type":
        return _not_text(document, path, name, value)
    if kind == "enum":
        allowed = str(detail.get("ctx", {}).get("expected", "")).replace("'", "")
        close = suggest(str(value), allowed.replace(" or ", ", ").split(", "))
        return Problem(
            path,
            "unknown-value",
            f"{name} is `{_short(value)}`",
            f"did you mean `{close}`?" if close else f"one of {allowed}",
        )
    if kind in _WANTED:
        return Problem(path, "wrong-type", f"{name} must be {_WANTED[kind]}, not {_described(value)}")
    if kind == "literal_error":
        return Problem(
            path,
            "wrong-type",
            f"{name}: planes are numbered 1 and 2, not "
            f"`{_short(detail['loc'][-2] if len(detail['loc']) > 1 else value)}`",
        )
    ctx = detail.get("ctx", {})
    if kind in ("greater_than_equal", "less_than_equal"):
        bound = ctx.get("ge", ctx.get("le"))
        word = "at least" if kind == "greater_than_equal" else "at most"
        return Problem(path, "out-of-range", f"{name} must be {word} {bound} (got {_short(value)})")
    if kind in ("too_short", "too_long"):
        wanted = ctx.get("min_length") if kind == "too_short" else ctx.get("max_length")
        word = "at least" if kind == "too_short" else "at most"
        return Problem(
            path, "wrong-count", f"{name} has {ctx.get('actual_length')} entries, needs {word} {wanted}"
        )
    return Problem(path, kind.replace("_", "-"), _prefixed(name, detail["msg"]), _HINTS.get(kind))


_HINTS = {
    "text_pattern": "such text is never handed to a shell, a path or a command line",
    "power_of_two": "the driver takes 1 to 8192 in powers of two; the default is 8192",
    "subnet_too_small": "use /31 or shorter, for example /30",
}


def _prefixed(name: str, message: str) -> str:
    # The hairpin queue and the node name carry their own subject; everything else gets its place in front.
    return (
        message
        if message.startswith("node name")
        else f"{name} {message}"
        if message.startswith("must")
        else f"{name}: {message}"
    )


def _not_text(document: Document, path: Path, name: str, value: Any) -> Problem:
    spelled = document.converted.get(path)
    if spelled is None:
        return Problem(path, "wrong-type", f"{name} must be text, not {_described(value)}")
    shown = _described(value)
    why = " (YAML 1.1 reads digits between colons as base 60)" if _sexagesimal(spelled) else ""
    return Problem(
        path, "unquoted", f"{name} is {shown}{why}, not the text `{spelled}`", f'quote it: "{spelled}"'
    )


def _sexagesimal(spelled: Reread) -> bool:
    return ":" in spelled and isinstance(spelled.value, (int, float)) and not isinstance(spelled.value, bool)


def _described(value: Any) -> str:
    if value is None:
        return "nothing"
    kind = _KINDS.get(type(value), "")
    return kind if isinstance(value, (dict, list)) else f"{kind} {_short(value)}".strip()


def _short(value: Any) -> str:
    text = str(value).replace("\n", " ")
    return text if len(text) <= 60 else f"{text[:57]}..."


def _where(document: Document, problem: Problem) -> str:
    return document.where(_locate(document, problem.path), key=problem.key)


def _error(document: Document, problem: Problem) -> FabricPlanError:
    return FabricPlanError(problem.message, where=_where(document, problem), hint=problem.hint, id=problem.id)


def _fabric(inventory: Inventory, roles: Hardwares, stem: str) -> Fabric:
    nodes = tuple(_node(inventory, roles, rank, entry) for rank, entry in enumerate(inventory.nodes))
    cables = []
    for index, (_, _, segment) in enumerate(segments(inventory)):
        ends = tuple(End(*split_end(end)) for end in segment.ends)
        pins = {
            plane: Pin(entry.subnet, tuple(entry.addresses) if entry.addresses else None)
            for plane, entry in enumerate(segment.planes or [], start=1)
            if entry.subnet is not None
        }
        cables.append(Cable(index, ends, pins, segment.name if isinstance(segment, RailEntry) else None))
    return Fabric(
        name=inventory.fabric or stem,
        nodes=nodes,
        cables=tuple(cables),
        planes=dict(sorted(inventory.planes.items())),
        mtu=inventory.mtu,
        pool=inventory.addressing.pool,
        prefix=inventory.addressing.prefix,
        hairpin=inventory.hairpin,
        mesh=inventory.mesh.paths,
        marker=inventory.mesh.marker,
        nccl_library=inventory.nccl.library,
        nccl_channels=inventory.nccl.channels,
        declared=inventory.topology,
    )


def _node(inventory: Inventory, roles: Hardwares, rank: int, entry: NodeEntry) -> Node:
    hardware = node_hardware(inventory, roles, entry.name)
    assert hardware is not None  # the checks have refused an unknown role
    functions = [
        _function(entry, port, plane, known)
        for port, role in hardware.ports.items()
        for plane, known in enumerate(role.functions, start=1)
    ]
    return Node(
        name=entry.name,
        rank=rank,
        mgmt=entry.mgmt or entry.name,
        mgmt_netdev=entry.mgmt_netdev or hardware.mgmt_netdev,
        ssh_user=entry.ssh.user,
        ssh_port=entry.ssh.port,
        hardware=hardware,
        functions=tuple(sorted(functions, key=lambda function: function.pci)),
    )


def _function(entry: NodeEntry, port: str, plane: int, known: RoleFunction) -> Function:
    written = entry.ports.get(port, [])
    own = written[plane - 1] if plane <= len(written) else FunctionEntry()
    return Function(
        entry.name,
        port,
        plane,
        own.netdev or known.netdev,
        own.rdma or known.rdma,
        own.pci or known.pci,
        own.mac,
    )
