"""Build wheel and sdist, install each into empty environments, and use them in an empty folder: ``make
test-wheel``.

Every supported Python that is found here gets an environment of its own; those that are missing are named.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.golden_trees import ROOT

PLACE = ROOT / "build" / "wheel"
PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet")


def versions() -> list[str]:
    """Return the Python versions that the project says it supports."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    return [found[1] for line in classifiers if (found := re.search(r":: (3\.\d+)$", line))]


def interpreter(version: str) -> str | None:
    """Return a Python of this version that works here: on PATH, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [shutil.which(f"python{version}"), *sorted(map(str, pyenv.glob(f"{version}.*/bin/python")))]
    for candidate in candidates:
        ask = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"
        # pyenv puts names on PATH that only say which versions there are.
        done = candidate and subprocess.run([candidate, "-c", ask], capture_output=True, text=True)
        if done and done.stdout.strip() == version:
            return candidate
    return None


def run(*argv: str | Path, cwd: Path = ROOT) -> str:
    """Run a command with nothing of this environment in it; return what it said."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }
    done = subprocess.run(
        argv, cwd=cwd, env={**kept, "PYTHONNOUSERSITE": "1"}, capture_output=True, text=True, timeout=600
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, argv))}\n{done.stdout}{done.stderr}")
    return done.stdout


def build() -> tuple[Path, Path]:
    """Build both; return wheel and sdist."""
    shutil.rmtree(PLACE, ignore_errors=True)
    run(sys.executable, "-m", "hatchling", "build", "-d", PLACE / "dist")
    (wheel,), (sdist,) = ((PLACE / "dist").glob(pattern) for pattern in ("*.whl", "*.tar.gz"))
    return wheel, sdist


def use(python: str, package: Path, name: str) -> None:
    """Install `package` and use it where nothing of the source is."""
    environment, empty = PLACE / name / "env", PLACE / name / "empty"
    empty.mkdir(parents=True)
    run(python, "-m", "venv", environment)
    run(environment / "bin" / "python", *PIP, "install", package)
    tool = environment / "bin" / "fabric-plan"
    shutil.copy(ROOT / "inventories" / "ring4.yaml", empty / "home.yaml")
    said = run(tool, "render", "-i", "home.yaml", "-o", "out", cwd=empty)
    assert "proof: ok" in said, said
    for path in ("out/spark4/etc/netplan/41-sparkring-plane2.yaml", "out/review.html"):
        assert (empty / path).stat().st_size, path
    assert "Gb/s" in run(tool, "explain", "half-bandwidth", cwd=empty)
    assert (environment / "share" / "man" / "man1" / "fabric-plan.1").stat().st_size
    known = list(verbs(run(tool, "--help", cwd=empty)))
    assert "render" in known, known
    for verb in known:
        assert "example:" in run(tool, verb, "--help", cwd=empty), verb
    assert "_fabric_plan" in run(tool, "completion", cwd=empty)
    lab = subprocess.run([tool, "lab", "up"], cwd=empty, capture_output=True, text=True, timeout=60)
    assert (lab.returncode, lab.stderr.count("Traceback")) == (1, 0), lab.stderr


def verbs(text: str) -> Iterator[str]:
    """Yield the verbs that the help lists."""
    yield from re.findall(r"^    ([a-z]+) ", text, re.MULTILINE)


def main() -> int:
    """Try them all."""
    wheel, sdist = build()
    for file in (wheel, sdist):
        print(f"built {file.name}, {file.stat().st_size >> 10} KiB")
    found = {version: python for version in versions() if (python := interpreter(version))}
    for number, (version, python) in enumerate(found.items()):
        use(python, wheel, f"wheel-{version}")
        print(f"Python {version}: the wheel works in an empty environment")
        if number == 0:
            use(python, sdist, f"sdist-{version}")
            print(f"Python {version}: so does the sdist")
    missing = [version for version in versions() if version not in found]
    if missing:
        print(f"not tried, not found here: Python {', '.join(missing)}")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
