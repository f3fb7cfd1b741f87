"""Units, files, conflicts and libraries of one node, and which boot it is in."""

from __future__ import annotations

from collections.abc import Iterator

from fabric_plan.checks.model import Check, Verdict
from fabric_plan.checks.offload import HAIRPIN_UNIT, MESH_UNIT, marker_of
from fabric_plan.checks.scene import View
from fabric_plan.compare.model import Resource
from fabric_plan.compare.preflight import management, other_mesh, other_subnets, pinned_marker
from fabric_plan.nccl.lint import lint

_UNITS = "/etc/systemd/system"
_GRAPHS = "/etc/fabric-plan/nccl/"


def units_of(view: View) -> list[str]:
    """Return the units that have to be active after a boot."""
    return [*view.want.units, *(f"fabric-plan-marker@{m.rdma}.service" for m in view.want.markers)]


def unit_checks(view: View, *, since_boot: bool) -> Iterator[Check]:
    """Yield the checks of units, and of the boot that they came up in."""
    if since_boot:
        yield _boot(view)
    for path, target in view.want.links:
        unit = target.rsplit("/", 1)[-1]
        yield view.judged(
            "unit-enabled",
            view.of(Resource.UNIT, path),
            f"link to {target}",
            readable=("files",),
            subject=unit,
            needs=view.needs(target),
            read="enabled",
        )
    for unit in units_of(view):
        yield from _unit(view, unit, since_boot=since_boot)


def _boot(view: View) -> Check:
    host = view.facts.host
    known = host.boot_id is not None and host.uptime_s is not None
    read = (
        f"boot {host.boot_id}, up for {host.uptime_s:.0f} s" if host.boot_id and host.uptime_s else "unknown"
    )
    return view.check(
        "boot", Verdict.PASS if known else Verdict.NOT_PROVEN, read, "known", needs=view.needs()
    )


def _unit(view: View, unit: str, *, since_boot: bool) -> Iterator[Check]:
    marker = marker_of(view, unit)
    template = f"{_UNITS}/fabric-plan-marker@.service" if marker else f"{_UNITS}/{unit}"
    name = marker.netdev if marker else None
    functions = [f.netdev for f in view.want.functions] if unit in (HAIRPIN_UNIT, MESH_UNIT) else []
    scripts = {
        HAIRPIN_UNIT: "/usr/local/lib/fabric-plan/hairpin.sh",
        MESH_UNIT: "/usr/local/lib/fabric-plan/mesh-up.sh",
        "fabric-plan-forward.service": "/usr/local/lib/fabric-plan/forward.sh",
    }
    needs = view.needs(template, unit, name, *functions, scripts.get(unit), MESH_UNIT if marker else None)
    state = (view.facts.units.value or {}).get(unit)
    kind = "marker-unit" if marker else "unit"
    if view.facts.units.value is None:
        yield view.check(kind, Verdict.NOT_PROVEN, "units: not readable", "active", subject=unit, needs=needs)
        return
    words = "not known" if state is None else f"{state.active_state} ({state.result})"
    active = state is not None and state.active_state == "active"
    yield view.check(
        kind, Verdict.PASS if active else Verdict.FAIL, words, "active", subject=unit, needs=needs
    )
    if state is not None and state.load_state == "loaded":
        verdict = Verdict.FAIL if state.needs_reload else Verdict.PASS
        read = "changed on disk since it was read" if state.needs_reload else "as on disk"
        yield view.check("unit-stale", verdict, read, "as on disk", subject=unit, needs=needs)
    if since_boot:
        uptime = view.facts.host.uptime_s
        since = state.active_since_us / 1e6 if state else 0.0
        came = active and uptime is not None and 0 < since <= uptime + 60
        read = f"active {since:.1f} s after the boot, {state.restarts if state else 0} restarts"
        verdict = Verdict.PASS if came else Verdict.FAIL if uptime is not None else Verdict.NOT_PROVEN
        yield view.check(
            "unit-boot",
            verdict,
            read if since else "never active in this boot",
            "active in this boot",
            subject=unit,
            needs=needs,
        )


def file_checks(view: View) -> Iterator[Check]:
    """Yield the checks of files, and of graph files as NCCL reads them where they lie."""
    for file in view.want.files:
        yield view.judged(
            "file",
            view.of(Resource.FILE, file.path),
            f"{file.mode} {file.sha256[:12]}",
            readable=("files",),
            subject=file.path,
            needs=view.needs(),
        )
        if file.path.startswith(_GRAPHS):
            yield _graph(view, file.path)
    wanted = {file.path for file in view.want.files}
    extra = [c for c in view.of(Resource.FILE) if c.name not in wanted]
    for change in extra:
        yield view.judged("file-extra", [change], "absent", subject=change.name, needs=view.needs())
    if not extra:
        yield view.judged("file-extra", (), "none", readable=("files",), needs=view.needs())
    if view.want.marker_path is not None:
        yield _program(view, view.want.marker_path)


def _program(view: View, path: str) -> Check:
    """Return the check of a marker that the inventory pins by its digest."""
    expected = f"sha256 {view.want.marker_sha256}"
    if view.facts.files.value is None:
        verdict, read, mend = Verdict.NOT_PROVEN, "files: not readable", None
    else:
        found = next(pinned_marker(view.want, view.facts), None)
        verdict = Verdict.PASS if found is None else Verdict.FAIL
        read, mend = (expected, None) if found is None else (found.message, found.hint)
    return view.check("marker-program", verdict, read, expected, subject=path, needs=view.needs(), mend=mend)


def _graph(view: View, path: str) -> Check:
    found = (view.facts.files.value or {}).get(path)
    needs = view.needs(path)
    if found is None or found.text is None:
        return view.check(
            "graph-file", Verdict.NOT_PROVEN, "not readable", "no finding", subject=path, needs=needs
        )
    findings = lint(found.text.encode())
    words = "; ".join(f"{f.line}:{f.column}: {f.text} ({f.effect})" for f in findings[:3])
    verdict = Verdict.FAIL if findings else Verdict.PASS
    return view.check("graph-file", verdict, words or "no finding", "no finding", subject=path, needs=needs)


def conflict_checks(view: View) -> Iterator[Check]:
    """Yield what others do on this node to the fabric's disadvantage."""
    named: dict[str, list[str]] = {}
    for change in view.of(Resource.CONFLICT):
        named.setdefault(change.name, []).append(change.have or "")
        yield view.check(
            "netplan-conflict",
            Verdict.FAIL,
            change.have or "",
            "defines none of our functions",
            interface=change.interface,
            subject=change.name,
            needs=view.needs(),
        )
    if not named:
        yield view.judged("netplan-conflict", (), "none", readable=("files",), needs=view.needs())
    for kind, read, judge in (
        ("other-mesh", view.facts.units.value, other_mesh),
        ("subnet-taken", view.facts.interfaces.value, other_subnets),
        ("management", view.facts.routes.value, management),
    ):
        found = list(judge(view.want, view.facts))
        for finding in found:
            yield view.check(
                kind,
                Verdict.FAIL,
                finding.message,
                "nothing of the kind",
                interface=finding.interface,
                needs=view.needs(),
                mend=finding.hint,
            )
        if not found:
            verdict = Verdict.NOT_PROVEN if read is None else Verdict.PASS
            words = "not readable" if read is None else "nothing of the kind"
            yield view.check(kind, verdict, words, "nothing of the kind", needs=view.needs())
