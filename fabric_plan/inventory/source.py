"""Read YAML as a user wrote it: bounded, with positions, and without YAML 1.1's silent conversions.

The text is parsed to PyYAML's event stream first, so size, depth and aliases are limited before anything is
built. Every value keeps its line and column, and a plain scalar that YAML 1.1 turned into a number or a truth
value keeps its spelling: the schema can then say "quote it" instead of working on the wrong value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from fabric_plan.errors import FabricPlanError, InventoryError

MAX_BYTES = 1_000_000
MAX_DEPTH = 32
MAX_ALIASES = 16
MAX_VALUES = 100_000

Path = tuple[str | int, ...]

_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "timestamp")}

# The C parser reads a large inventory several times faster; where PyYAML came without it, the other one
# serves.
_LOADER: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Mark:
    """A position in the source, counted from 1."""

    line: int
    column: int


class Reread(str):
    """The spelling of a plain scalar that YAML 1.1 reads as something other than text."""

    __slots__ = ("value",)
    value: object

    def __new__(cls, spelling: str, value: object) -> Reread:
        self = super().__new__(cls, spelling)
        self.value = value
        return self


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed document: plain data, where each value and each key stands, and the scalars that YAML
    converted.
    """

    name: str
    data: Any
    values: dict[Path, Mark] = field(repr=False)
    keys: dict[Path, Mark] = field(repr=False)
    converted: dict[Path, Reread] = field(repr=False)

    def where(self, path: Path, *, key: bool = False) -> str:
        """Return ``file:line:column`` of the value at `path` (or its key), or of the nearest parent that has
        one.
        """
        for end in range(len(path), -1, -1):
            part = path[:end]
            mark = (self.keys.get(part) if key else None) or self.values.get(part) or self.keys.get(part)
            if mark:
                return f"{self.name}:{mark.line}:{mark.column}"
        return self.name


class _Builder:
    """Builds the plain data from composed nodes and collects every duplicate key on the way."""

    def __init__(self, name: str) -> None:
        self.document = Document(name, None, {}, {}, {})
        self.errors: list[FabricPlanError] = []
        self.count = 0
        self._constructor = yaml.constructor.SafeConstructor()

    def build(self, node: yaml.Node, path: Path, depth: int) -> Any:
        self.count += 1
        if depth > MAX_DEPTH:
            raise _fatal(
                self.document.name, node, f"nested deeper than {MAX_DEPTH} levels", "write it flatter"
            )
        if self.count > MAX_VALUES:
            raise _fatal(
                self.document.name,
                node,
                f"more than {MAX_VALUES} values",
                "an inventory lists nodes and cables, nothing else",
            )
        self.document.values[path] = _mark(node)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*path, i), depth + 1) for i, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: Path, depth: int) -> dict[Any, Any]:
        out: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == "tag:yaml.org,2002:merge":
                raise _fatal(
                    self.document.name,
                    key_node,
                    "a key must be plain text",
                    "merge keys (<<) and complex keys are not used here",
                )
            key = self._key(key_node)
            here = (*path, key)
            if here in self.document.keys:
                first = self.document.keys[here].line
                self.errors.append(
                    FabricPlanError(
                        f"key `{key}` appears twice (lines {first} and {_mark(key_node).line})",
                        where=f"{self.document.name}:{_mark(key_node).line}:{_mark(key_node).column}",
                        hint="keep one of the two; nothing is dropped silently",
                        id="duplicate-key",
                    )
                )
                continue
            self.document.keys[here] = _mark(key_node)
            out[key] = self.build(value_node, here, depth + 1)
        return out

    def _key(self, node: yaml.ScalarNode) -> str | int:
        # Plane numbers are the only keys that are numbers; every other key is the text that was written.
        if node.tag == "tag:yaml.org,2002:int" and re.fullmatch(r"[0-9]{1,3}", node.value):
            return int(node.value)
        return str(node.value)

    def _scalar(self, node: yaml.Node, path: Path) -> Any:
        if node.tag not in _TAGS:
            raise _fatal(self.document.name, node, f"tag {node.tag!r} is not allowed", "remove it")
        if node.tag == "tag:yaml.org,2002:str":
            return node.value
        try:
            value = self._constructor.construct_object(node)
        except (ValueError, OverflowError, yaml.YAMLError, KeyError, TypeError) as error:
            raise _fatal(
                self.document.name, node, f"cannot read {node.value[:40]!r} ({error})", "quote it"
            ) from None
        if value is not None:
            self.document.converted[path] = Reread(node.value, value)
        return value


def _mark(node: yaml.Node) -> Mark:
    return Mark(node.start_mark.line + 1, node.start_mark.column + 1)


def _fatal(name: str, node: yaml.Node, message: str, hint: str) -> InventoryError:
    mark = _mark(node)
    return InventoryError(
        [FabricPlanError(message, where=f"{name}:{mark.line}:{mark.column}", hint=hint, id="yaml")]
    )


def _refuse(name: str, message: str, hint: str, id: str = "yaml", line: int | None = None) -> InventoryError:
    where = name if line is None else f"{name}:{line}:1"
    return InventoryError([FabricPlanError(message, where=where, hint=hint, id=id)])


def _bound(name: str, text: str) -> None:
    """Walk the events once, before anything is built, and stop at what no inventory contains."""
    depth = aliases = 0
    for count, event in enumerate(yaml.parse(text, Loader=_LOADER)):
        line = event.start_mark.line + 1 if event.start_mark else None
        if count > 4 * MAX_VALUES:
            raise _refuse(
                name, f"more than {MAX_VALUES} values", "an inventory lists nodes and cables, nothing else"
            )
        if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            depth += 1
            if depth > MAX_DEPTH:
                raise _refuse(
                    name,
                    f"nested deeper than {MAX_DEPTH} levels",
                    "write it flatter",
                    line=line,
                )
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            depth -= 1
        elif isinstance(event, yaml.AliasEvent):
            aliases += 1
            if aliases > MAX_ALIASES:
                raise _refuse(
                    name,
                    f"more than {MAX_ALIASES} YAML aliases: expanding them could grow without bound",
                    "write the values out",
                    id="too-many-aliases",
                    line=line,
                )


def parse_yaml(text: str | bytes, name: str) -> Document:
    """Parse the YAML `text` of the file called `name`.

    Raises `InventoryError` with every duplicate key, or with the one reason why the text cannot be read at
    all.
    """
    if len(text) > MAX_BYTES:
        raise _refuse(
            name, f"the file is larger than {MAX_BYTES} bytes", "this is not an inventory", id="too-large"
        )
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise _refuse(
                name, f"not UTF-8 text (byte {error.start})", "save the file as UTF-8", id="not-utf8"
            ) from None
    if not text.strip("\0 \t\r\n"):
        size = len(text.encode())
        what = (
            f"the file is empty ({size} bytes)"
            if "\0" not in text
            else f"the file is {size} bytes of NUL and nothing else: empty"
        )
        raise _refuse(name, what, "an inventory has at least nodes: and cables:", id="empty")
    try:
        _bound(name, text)
        documents = list(yaml.compose_all(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        problem = " ".join(part for part in (error.context, error.problem) if part)
        if "nesting depth" in problem:  # the C parser reads ahead of the events
            raise _refuse(name, f"nested deeper than {MAX_DEPTH} levels", "write it flatter") from None
        raise InventoryError(
            [
                FabricPlanError(
                    f"not valid YAML: {problem}", where=where, hint=_yaml_hint(text, mark), id="yaml"
                )
            ]
        ) from None
    except yaml.YAMLError as error:
        raise _refuse(
            name, f"not valid YAML: {str(error).splitlines()[0]}", "save it as plain UTF-8 text"
        ) from None
    except RecursionError:
        raise _refuse(name, f"nested deeper than {MAX_DEPTH} levels", "write it flatter") from None
    if len(documents) != 1 or documents[0] is None:
        raise _refuse(
            name, f"the file holds {len(documents)} YAML documents", "keep one, without further --- lines"
        )
    builder = _Builder(name)
    data = builder.build(documents[0], (), 0)
    if builder.errors:
        raise InventoryError(builder.errors)
    found = builder.document
    return Document(name, data, found.values, found.keys, found.converted)


def _yaml_hint(text: str, mark: yaml.Mark | None) -> str:
    if mark is not None:
        line = text.splitlines()[mark.line] if mark.line < len(text.splitlines()) else ""
        if "\t" in line:
            return "indent with blanks, not with tabs"
    return "check indentation, brackets and quotes near there"
