"""What every warning, refusal and finding means: what ``roles/explain`` and the checks' table hold.

Nothing here reads a file: `fabric_plan.resources` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from fabric_plan.checks.texts import TEXTS, Text
from fabric_plan.errors import FabricPlanError
from fabric_plan.roles import Meaning

CHECKS = "checks"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The meaning of one `id` in one `area`: the file under ``roles/explain``, or ``checks``.

    One id may be known in two areas: a setting that cannot be written, and the check of that setting.
    """

    area: str
    id: str
    meaning: Meaning


def listed(areas: Mapping[str, Mapping[str, Meaning]]) -> tuple[Explanation, ...]:
    """Return every explanation, by area and id: those of `areas`, and the table of the checks."""
    checks = {id_: Meaning(**_sentences(text)) for id_, text in TEXTS.items()}
    return tuple(
        Explanation(area, name, meaning)
        for area, meanings in sorted({**areas, CHECKS: checks}.items())
        for name, meaning in sorted(meanings.items())
    )


def _sentences(text: Text) -> dict[str, str]:
    parts = {"what": text.what, "why": text.why, "mend": text.mend, "figure": text.figure}
    return {name: part for name, part in parts.items() if part}


def explain(known: Iterable[Explanation], id: str) -> tuple[Explanation, ...]:
    """Return what is known of `id`. Raises `FabricPlanError` where that is nothing, with the nearest id."""
    everything = tuple(known)
    found = tuple(one for one in everything if one.id == id)
    if not found:
        near = get_close_matches(id, sorted({one.id for one in everything}), n=3, cutoff=0.6)
        hint = f"did you mean {' or '.join(near)}?" if near else "`fabric-plan explain` lists every id"
        raise FabricPlanError(f"there is no id `{id}`", hint=hint)
    return found
