"""The rendered files on real ranks of NCCL: namespaces for nodes, veth pairs for cables, one GPU for all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nccl.gpu_cases import CASES, LINT_CASES, Case
from tests.nccl.gpu_run import libraries, missing, run_cases

pytestmark = [
    pytest.mark.nccl,
    pytest.mark.root,
    pytest.mark.skipif(missing() is not None, reason=f"NCCL on a GPU: {missing()}"),
]


@pytest.mark.parametrize("case", [*CASES, *LINT_CASES], ids=lambda case: str(case.name))
def test_case(case: Case, tmp_path: Path) -> None:
    for library in libraries():
        (outcome,) = run_cases((case,), library, tmp_path)
        assert outcome.wrong() == []
