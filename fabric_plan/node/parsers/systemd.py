"""systemctl show: units as blocks of ``Key=value`` lines."""

from __future__ import annotations

from collections.abc import Mapping

from ..document import Unit
from ..reading import MismatchError, Reading, Unreadable, number

PROPERTIES = (
    "Id",
    "LoadState",
    "ActiveState",
    "SubState",
    "UnitFileState",
    "Result",
    "MainPID",
    "NRestarts",
    "ExecMainStatus",
    "ActiveEnterTimestampMonotonic",
    "FragmentPath",
    "NeedDaemonReload",
)


def units(text: str) -> Reading[Mapping[str, Unit]]:
    """Parse ``systemctl show --property=... UNIT...``: blank lines part the units."""
    found: dict[str, Unit] = {}
    unread: list[Unreadable] = []
    for block in text.strip().split("\n\n"):
        lines = [line.partition("=") for line in block.splitlines()]
        table = {key: value for key, equals, value in lines if equals}
        try:
            if not table.get("Id"):
                raise MismatchError("a unit without a name", block)
            found[table["Id"]] = _unit(table)
        except MismatchError as error:
            unread.append(error.unreadable)
    return Reading(found if found or not unread else None, tuple(unread))


def _unit(table: Mapping[str, str]) -> Unit:
    """Return a unit; where its kind lacks a property (a target has no process) there is 0 or nothing."""
    if not table.get("LoadState") or not table.get("ActiveState"):
        raise MismatchError("a unit without its state", dict(table))
    return Unit(
        load_state=table["LoadState"],
        active_state=table["ActiveState"],
        sub_state=table.get("SubState", ""),
        file_state=table.get("UnitFileState", ""),
        result=table.get("Result", ""),
        main_pid=number(table.get("MainPID", "0")),
        restarts=number(table.get("NRestarts", "0")),
        exit_status=number(table.get("ExecMainStatus", "0")),
        active_since_us=number(table.get("ActiveEnterTimestampMonotonic", "0")),
        fragment=table.get("FragmentPath", ""),
        needs_reload=table.get("NeedDaemonReload") == "yes",
    )
