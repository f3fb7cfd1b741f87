"""From plain JSON values to frozen records, by the records' own type annotations.

Every value is checked against its annotation: no coercion, no unknown type, bounded sizes. Keys that a
record does not know are passed over, because a newer node may say more; a missing key takes the record's
default or is an error.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from fabric_plan.node.reading import MAX_INT, Reading, Unreadable

MAX_TEXT = 1 << 20
MAX_ITEMS = 20_000

Decoder = Callable[[Any, str], Any]


class DecodeError(Exception):
    """A value that does not fit; `where` is its place in the document (``rdma.gids.value[3].index``)."""

    def __init__(self, where: str, expected: str, found: object) -> None:
        shown = repr(found)
        super().__init__(f"expected {expected}, found {shown if len(shown) <= 60 else shown[:57] + '...'}")
        self.where = where


def decode(kind: Any, value: Any, where: str = "") -> Any:
    """Return `value` as the annotated type `kind`; raises `DecodeError`."""
    return decoder(kind)(value, where)


@cache
def decoder(kind: Any) -> Decoder:
    """Return the function that checks and converts a value to `kind`."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Reading:
        return _record(Reading, {"value": arguments[0] | None, "unread": tuple[Unreadable, ...]})
    if origin in (types.UnionType, typing.Union):
        return _optional(arguments)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _list(arguments[0])
    if origin is Mapping and arguments[0] is str:
        return _mapping(arguments[1])
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _record(kind, typing.get_type_hints(kind))
    raise TypeError(f"no decoder for {kind}")


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise DecodeError(where, "text", value)
    if "\x00" in value or not (value.isascii() or _encodable(value)):
        raise DecodeError(where, "text without NUL and lone surrogates", value)
    return value


def _encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _int(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -MAX_INT <= value <= MAX_INT:
        raise DecodeError(where, "a whole number", value)
    return value


def _float(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e18 <= value <= 1e18:
        raise DecodeError(where, "a number", value)
    return float(value)


def _bool(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise DecodeError(where, "true or false", value)
    return value


_PLAIN: dict[Any, Decoder] = {str: _text, int: _int, float: _float, bool: _bool}


def _optional(arguments: tuple[Any, ...]) -> Decoder:
    (inner,) = (argument for argument in arguments if argument is not types.NoneType)
    present = decoder(inner)
    return lambda value, where: None if value is None else present(value, where)


def _list(inner: Any) -> Decoder:
    each = decoder(inner)

    def convert(value: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) > MAX_ITEMS:
            raise DecodeError(where, f"a list of at most {MAX_ITEMS}", value)
        return tuple(each(item, f"{where}[{at}]") for at, item in enumerate(value))

    return convert


def _mapping(inner: Any) -> Decoder:
    each = decoder(inner)

    def convert(value: Any, where: str) -> Mapping[str, Any]:
        if not isinstance(value, dict) or len(value) > MAX_ITEMS:
            raise DecodeError(where, f"an object of at most {MAX_ITEMS} keys", value)
        return types.MappingProxyType(
            {_text(key, where): each(item, f"{where}.{key}") for key, item in value.items()}
        )

    return convert


def _record(kind: Any, hints: dict[str, Any]) -> Decoder:
    fields = dataclasses.fields(kind)
    inner = {field.name: decoder(hints[field.name]) for field in fields}
    required = {
        field.name
        for field in fields
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }

    def convert(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise DecodeError(where, "an object", value)
        missing = sorted(required - value.keys())
        if missing:
            raise DecodeError(f"{where}.{missing[0]}".lstrip("."), "a value", None)
        known = {
            name: each(value[name], f"{where}.{name}".lstrip("."))
            for name, each in inner.items()
            if name in value
        }
        return kind(**known)

    return convert
