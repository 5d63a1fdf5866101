"""Environments in which other libraries run: each needs versions that ours does not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

HOME = Path(__file__).resolve().parents[1] / ".bench"
OLD = ["numpy==1.23.5", "scipy==1.10.1", "scikit-learn==1.2.2", "matplotlib==3.7.1", "six"]
# Each environment is filled in steps; a step that begins with options passes them on to pip.
PACKAGES = {
    # metric-learn 0.7.0 fails on scikit-learn ≥ 1.8, whose validation lost the argument it passes
    "metric-learn": [["metric-learn==0.7.0", "scikit-learn==1.7.2"]],
    "mlpack": [["mlpack==4.8.0", "scikit-learn==1.9.1"]],
    # needs six, GPyOpt, GPy and matplotlib merely to be imported, and declares none of them
    "pylmnn": [["pylmnn==1.6.4", "GPyOpt", "GPy", *OLD]],
    # source only; its set-up imports NumPy and Cython without asking for them
    "pydml": [
        ["wheel", "setuptools==65.5.0", "Cython==0.29.36", "pandas==1.5.3", "seaborn==0.12.2", *OLD],
        ["--no-build-isolation", "--no-deps", "pydml==0.1.0"],
    ],
    # torch comes first and alone: its pinned version has a build without CUDA
    "pytorch-metric-learning": [["torch==2.13.0"], ["pytorch-metric-learning==2.9.0", "faiss-cpu==1.15.1"]],
}
OURS = "isometry"  # the environment that runs this, with scikit-learn in it
BEFORE, BEFORE_COMMIT = "isometry before", "0105419"  # the same with our own code of then
POLL = 0.01  # seconds between two looks at the memory of a fit


def python(name: str) -> Path:
    """The interpreter of an environment, made on first use and again if its packages change."""
    if name in (OURS, BEFORE):
        return Path(sys.executable)
    home, wanted = HOME / name, json.dumps(PACKAGES[name])
    executable, ready = home / "bin" / "python", home / ".ready"
    if not ready.exists() or ready.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        for step in PACKAGES[name]:
            pip = [str(executable), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, *step], check=True)
        ready.write_text(wanted)
    return executable


def code_of_before() -> Path:
    """The folder with our package as it was at ``BEFORE_COMMIT``, taken from the repository on first use."""
    folder = HOME / f"before-{BEFORE_COMMIT}"
    if not (folder / "isometry").exists():
        folder.mkdir(parents=True, exist_ok=True)
        archive = folder / "isometry.tar"
        command = ["git", "archive", "--output", str(archive), BEFORE_COMMIT, "isometry"]
        subprocess.run(command, cwd=HOME.parent, check=True)
        with tarfile.open(archive) as files:
            files.extractall(folder, filter="data")
    return folder


def run(name: str, code: str, *arguments: str, timeout: float | None = None) -> str:
    """Run code in an environment, in a process of its own; its standard output."""
    done = subprocess.run(
        [str(python(name)), "-c", code, *arguments], capture_output=True, text=True, timeout=timeout, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{name} failed:\n{done.stderr[-2000:]}")
    return done.stdout


@dataclass
class Outcome:
    """One fit: its cost and its map or figures, or why there are none."""

    failure: str = ""
    cpu: float = np.nan  # seconds of all threads
    wall: float = np.nan
    mib: float = np.nan  # peak of memory that is not a file, above what there was when the fit began
    L: np.ndarray | None = None  # (p, d)
    figures: dict[str, float] = field(default_factory=dict)


def measure(
    environment: str,
    call: str,
    params: dict[str, Any],
    data: Path,
    *,
    mapped: bool = False,
    arrays: dict[str, np.ndarray] | None = None,
    limit: float = 300,
    limit_gib: float = 9,
    threads: int = 1,
) -> Outcome:
    """Run one call of peers.py on X.npy and y.npy in ``data``, in a process that ends at the limits."""
    executable = str(python(environment))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, array in (arrays or {}).items():
            np.save(folder / f"{name}.npy", array)
        job = {"call": call, "params": params, "data": str(data), "mapped": mapped, "result": str(folder / "L.npy")}
        job["arrays"] = {name: str(folder / f"{name}.npy") for name in arrays or {}}
        (folder / "job.json").write_text(json.dumps(job))
        count = str(threads)
        variables = {"OMP_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count, "MKL_NUM_THREADS": count}
        if environment in (OURS, BEFORE):
            variables["PYTHONPATH"] = str(HOME.parent if environment == OURS else code_of_before())
        with open(folder / "out", "w") as out, open(folder / "err", "w") as err:
            process = subprocess.Popen(
                [executable, str(Path(__file__).with_name("worker.py")), str(folder / "job.json")],
                stdout=out,
                stderr=err,
                env={**os.environ, **variables},
            )
            killed, samples = _watch(process, limit, limit_gib)
        outcome = Outcome(failure=killed)
        if not killed and process.returncode:
            lines = (folder / "err").read_text().strip().splitlines() or [f"ended with code {process.returncode}"]
            outcome.failure = lines[-1][:160]
        if outcome.failure:
            outcome.mib = max((m for _, m in samples), default=np.nan) if "GiB" in killed else np.nan
            return outcome
        times = json.loads((folder / "out").read_text().strip().splitlines()[-1])
        outcome.cpu, outcome.wall = times["cpu"], times["end"] - times["start"]
        outcome.mib = _peak(samples, times["start"], times["end"])
        outcome.figures = times.get("figures", {})
        if (folder / "L.npy").exists():
            outcome.L = np.load(folder / "L.npy")
            outcome.failure = _flaw(outcome.L)
        return outcome


@dataclass(frozen=True)
class Job:
    """One fit of a series."""

    call: str
    params: dict[str, Any]
    arrays: dict[str, np.ndarray] = field(default_factory=dict)


def measure_series(environment: str, jobs: list[Job], data: Path, *, limits: Sequence[float]) -> list[Outcome]:
    """The jobs one after another in one process, so that its imports are paid once; memory is not watched.

    The kernel ends a fit at its limit of CPU seconds, whatever else runs on the machine; the others go on in a new
    process. A fit that raises an error ends none.
    """
    outcomes: list[Outcome] = []
    variables = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    if environment == OURS:  # the code beside this file, wherever the environment was installed from
        variables["PYTHONPATH"] = str(HOME.parent)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for k, job in enumerate(jobs):
            described = {"call": job.call, "params": job.params, "data": str(data), "mapped": False}
            described["arrays"] = {name: str(folder / f"{k}_{name}.npy") for name in job.arrays}
            described["limit_cpu"] = limits[k]
            for name, array in job.arrays.items():
                np.save(folder / f"{k}_{name}.npy", array)
            (folder / f"{k}.json").write_text(json.dumps({**described, "result": str(folder / f"{k}.npy")}))
        while len(outcomes) < len(jobs):
            first = len(outcomes)
            with open(folder / "err", "w") as err:
                script = str(Path(__file__).with_name("worker.py"))
                series = [str(folder / f"{k}.json") for k in range(first, len(jobs))]
                ended = subprocess.run(
                    [str(python(environment)), script, "--series", *series],
                    stdout=subprocess.DEVNULL,
                    stderr=err,
                    env={**os.environ, **variables},
                    check=False,
                )
            for k in range(first, len(jobs)):
                told = folder / f"{k}.json.done"
                if not told.exists():
                    break
                outcomes.append(_read(json.loads(told.read_text()), folder / f"{k}.npy"))
            if len(outcomes) < len(jobs):  # this one ended the process
                over = ended.returncode == -signal.SIGXCPU
                why = (
                    f"more than {limits[len(outcomes)]:.3g} CPU s"
                    if over
                    else f"the process ended with code {ended.returncode}"
                )
                outcomes.append(Outcome(failure=why))
    return outcomes


def _read(told: dict[str, Any], result: Path) -> Outcome:
    outcome = Outcome(failure=told.get("error", ""), cpu=told.get("cpu", np.nan), figures=told.get("figures", {}))
    if result.exists():
        outcome.L = np.load(result)
        outcome.failure = outcome.failure or _flaw(outcome.L)
    return outcome


def _flaw(L: np.ndarray) -> str:
    if not L.size:
        return "the map has no dimension"
    if not np.isfinite(L).all():
        return f"{100 * np.mean(~np.isfinite(L)):.0f} % of the map is not finite"
    if np.iscomplexobj(L) and np.abs(L.imag).max() > 0:
        return "the map has complex entries"
    return ""


def _watch(process: subprocess.Popen, limit: float, limit_gib: float) -> tuple[str, list[tuple[float, float]]]:
    """Why the process was ended, if it was, and (time, MiB of memory that is no file) until then."""
    begin, samples = time.monotonic(), []
    while process.poll() is None:
        mib = _anonymous_mib(process.pid)
        samples.append((time.monotonic(), mib))
        reason = ""
        if time.monotonic() - begin > limit:
            reason = f"more than {limit:g} s"
        elif mib > 1024 * limit_gib:
            reason = f"more than {limit_gib:g} GiB"
        if reason:
            process.kill()
            process.wait()
            return reason, samples
        time.sleep(POLL)
    return "", samples


def _anonymous_mib(pid: int) -> float:
    """Resident memory that is no mapped file; 0 once the process is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(int(line.split()[1]) for line in status.splitlines() if line.startswith(("RssAnon", "RssShmem"))) / 1024


def _peak(samples: list[tuple[float, float]], start: float, end: float) -> float:
    before = [m for t, m in samples if t <= start]
    during = [m for t, m in samples if start < t <= end]
    return max(max(during, default=0.0) - (before[-1] if before else 0.0), 0.0)
