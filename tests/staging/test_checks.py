"""Each check of ``verify`` is a test: pass, fail, or a visible skip for what the host cannot show."""

from __future__ import annotations

import pytest

from fabric_plan.checks.model import Check, Verdict
from tests.staging.nodes import Staging


def test_check(check: Check, seen: Staging) -> None:
    roots = {under: root.check for root in seen.verification.roots for under in root.consequences}
    cause = roots.get(check)
    why = f"\n  follows from: {cause}" if cause else ""
    # A node that does not answer shows nothing, and that is its fault; a missing tool is not the fabric's.
    if check.verdict is Verdict.NOT_PROVEN and check.id != "facts" and (cause is None or cause.id != "facts"):
        pytest.skip(f"not proven: {check.place}: {check.read}")
    assert check.verdict is Verdict.PASS, f"{check}\n  mend: {check.mend}{why}"
