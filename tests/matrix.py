"""The suite under several Pythons, each with the oldest stated and the newest dependencies: `make test-matrix`.

Environments live in .venv-matrix/. Only wheels are installed: where the oldest stated version of a package has none for
a Python, the oldest version that has one takes its place, and a line says so. torch is installed for `DEEP` alone, the
Python of constraints.txt: its pinned build there is without CUDA. Elsewhere the tests of isometry.deep are skipped.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / ".venv-matrix"
DEEP = "3.11"
EXTRAS = ("cli", "sdp", "dask")
TOOLS = ("pytest>=8", "pytest-xdist>=3")


def find_python(name: str) -> str | None:
    """A command that runs, on the PATH or among pyenv's versions, whose shims refuse those that are not switched on."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    number = name.removeprefix("python")
    for command in (name, *map(str, sorted(versions.glob(f"{number}.*/bin/python"), reverse=True))):
        if shutil.which(command) and subprocess.run([command, "--version"], capture_output=True).returncode == 0:
            return command
    return None


def stated(extras: tuple[str, ...]) -> list[Requirement]:
    """What pyproject.toml asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for e in extras for line in project["optional-dependencies"][e])]
    return [Requirement(line) for line in lines]


def oldest(python: Path, requirements: list[Requirement]) -> list[str]:
    """``name==version`` of the lower bounds; where one has no wheel for this Python, the oldest version that has."""
    bounds = {r.name: next(s.version for s in r.specifier if s.operator == ">=") for r in requirements}
    pins = [f"{name}=={bound}" for name, bound in bounds.items()]
    return pins if has_wheels(python, *pins) else [oldest_wheel(python, name, bounds[name]) for name in bounds]


def oldest_wheel(python: Path, name: str, bound: str) -> str:
    if has_wheels(python, f"{name}=={bound}"):
        return f"{name}=={bound}"
    listed = re.search(r"Available versions: (.*)", pip(python, "index", "versions", name).stdout)[1].split(", ")
    for version in sorted(Version(v) for v in listed if re.fullmatch(r"[\d.]+", v)):
        if version > Version(bound) and has_wheels(python, f"{name}=={version}"):
            print(f"  {name} {version}: {bound} has no wheel for this Python", flush=True)
            return f"{name}=={version}"
    raise SystemExit(f"no wheel of {name}>={bound} for {python}")


def has_wheels(python: Path, *pins: str) -> bool:
    return pip(python, "install", "--dry-run", "--no-deps", "--ignore-installed", *pins, check=False).returncode == 0


def pip(python: Path, *arguments: str, check: bool = True) -> subprocess.CompletedProcess:
    quiet = ["--disable-pip-version-check", "--quiet"] if arguments[0] == "install" else ["--disable-pip-version-check"]
    wheels = ["--only-binary", ":all:"] if arguments[0] == "install" else []
    command = [str(python), "-m", "pip", *quiet, arguments[0], *wheels, *arguments[1:]]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if check and done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
    return done


def install(command: str, number: str, age: str) -> Path:
    """The interpreter of an environment with the dependencies of this age."""
    folder = HOME / f"{number}-{age}"
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([command, "-m", "venv", str(folder)], check=True)
    extras = (*EXTRAS, "deep") if number == DEEP else EXTRAS
    limits = folder / "limits.txt"
    torch = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))
    pins = oldest(python, [r for r in stated(extras) if r.name != "torch"]) if age == "oldest" else []
    limits.write_text("\n".join([torch, *pins]) + "\n")
    within = ["--constraint", str(limits)]
    if number == DEEP:
        pip(python, "install", *within, "torch")
    pip(python, "install", *within, "hatchling", "editables")
    fresh = ["--upgrade", "--upgrade-strategy", "eager"] if age == "newest" else []
    project = f".[{','.join(extras)}]"
    pip(python, "install", *within, *fresh, "--no-build-isolation", "--editable", project, *TOOLS)
    return python


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="+", help="such as python3.12")
    parser.add_argument("--jobs", default="2")
    parser.add_argument("--ages", nargs="+", default=["oldest", "newest"], choices=["oldest", "newest"])
    parser.add_argument("--tests", nargs="+", default=["tests"])
    options = parser.parse_args()
    outcomes = {}
    for name in options.pythons:
        command = find_python(name)
        if command is None:
            outcomes[name] = "not found, skipped"
            print(f"{name}: {outcomes[name]}", flush=True)
            continue
        number = name.removeprefix("python")
        for age in options.ages:
            print(f"{name}, {age} dependencies", flush=True)
            python = install(command, number, age)
            if number != DEEP:
                print(f"  without torch: the tests of isometry.deep are skipped; Python {DEEP} runs them", flush=True)
            print(pip(python, "freeze", "--exclude-editable").stdout.replace("\n", " "), flush=True)
            tests = [str(python), "-m", "pytest", "-q", "-n", options.jobs, "-p", "no:cacheprovider", *options.tests]
            code = subprocess.run(tests, cwd=ROOT).returncode
            outcomes[f"{name}, {age}"] = "passed" if code == 0 else "FAILED"
    print("\n".join(f"{cell}: {outcome}" for cell, outcome in outcomes.items()))
    sys.exit("FAILED" in outcomes.values() or "passed" not in outcomes.values())


if __name__ == "__main__":
    main()
