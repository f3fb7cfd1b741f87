"""What can go wrong in the lab itself, as opposed to in what is tried there."""

from __future__ import annotations

from fabric_plan.errors import FabricPlanError


class LabError(FabricPlanError):
    """The lab cannot be built, started or driven. Lines of the message after its first are evidence."""

    def lines(self) -> list[str]:
        """Return what a person reads: the message, the hint, then the evidence."""
        head, _, evidence = self.message.partition("\n")
        shown = FabricPlanError(head, where=self.where, hint=self.hint).lines()
        return [*shown, *(FabricPlanError(line).lines()[0] for line in evidence.splitlines())]


class LabUnavailableError(LabError):
    """This machine cannot run the lab (no QEMU, no memory, no package manager): a reason to skip, not to
    fail.
    """
