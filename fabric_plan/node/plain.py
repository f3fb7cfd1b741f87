"""Records by their annotations: what this program needs of `dataclasses`, without the code that it generates
for every class. Each call of the node program is a new process, and generating took longer than most calls.

Type checkers see ordinary dataclasses, and so does the controller: `fields`, `replace`, `asdict` and
`is_dataclass` of `dataclasses` work on these records too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any


def names(record: Any) -> tuple[str, ...]:
    """Return the names of a record's values, in their order."""
    return tuple(record._defaults)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from dataclasses import replace as replace
else:
    _REQUIRED = object()

    class _Factory:
        """A default that is made anew for each record."""

        def __init__(self, make):
            self.make = make

    class _Fields:
        """The fields as `dataclasses` knows them, made when somebody asks."""

        def __get__(self, record, owner):
            import dataclasses

            described = []
            for name, default in owner._defaults.items():
                annotation = owner.__annotations__[name]
                if default is _REQUIRED:
                    described.append((name, annotation))
                elif isinstance(default, _Factory):
                    described.append((name, annotation, dataclasses.field(default_factory=default.make)))
                else:
                    described.append((name, annotation, dataclasses.field(default=default)))
            owner.__dataclass_fields__ = dataclasses.make_dataclass("_", described).__dataclass_fields__
            return owner.__dataclass_fields__

    def field(*, default_factory):
        """Return the mark of a default that is made anew for each record."""
        return _Factory(default_factory)

    def dataclass(cls=None, *, frozen=False):
        """Make a record of a class; as the decorator of that name in `dataclasses`, inheritance left out."""
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen)
        own = vars(cls)
        cls._defaults = {name: own.get(name, _REQUIRED) for name in cls.__annotations__}
        for name, default in cls._defaults.items():
            if isinstance(default, _Factory):
                delattr(cls, name)
        cls.__dataclass_fields__ = _Fields()
        cls.__init__, cls.__repr__, cls.__eq__ = _init, _repr, _eq
        cls.__hash__ = _hash if frozen else None
        if frozen:
            cls.__setattr__, cls.__delattr__ = _refuse, _refuse
        return cls

    def replace(record, **changes):
        """Return a record with other values."""
        return type(record)(**{**vars(record), **changes})

    def _init(self, /, *given, **named):
        values, defaults = vars(self), self._defaults
        if len(given) > len(defaults):
            raise TypeError(f"{type(self).__name__} takes {len(defaults)} values, {len(given)} were given")
        for at, (name, default) in enumerate(defaults.items()):
            if at < len(given):
                values[name] = given[at]
            elif name in named:
                values[name] = named.pop(name)
            elif default is _REQUIRED:
                raise TypeError(f"{type(self).__name__} needs {name}")
            else:
                values[name] = default.make() if isinstance(default, _Factory) else default
        if named:
            raise TypeError(f"{type(self).__name__} takes no {', '.join(named)}, or not twice")

    def _repr(self):
        return (
            f"{type(self).__qualname__}({', '.join(f'{key}={value!r}' for key, value in vars(self).items())})"
        )

    def _eq(self, other):
        return vars(self) == vars(other) if type(self) is type(other) else NotImplemented

    def _hash(self):
        return hash(tuple(vars(self).values()))

    def _refuse(self, name, *value):
        raise AttributeError(f"{type(self).__name__} is frozen: {name} cannot be changed")
