"""Environments in which other libraries run: each needs versions that ours does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HOME = Path(__file__).resolve().parents[1] / ".bench"
PACKAGES = {
    # metric-learn 0.7.0 fails on scikit-learn ≥ 1.8, whose validation lost the argument it passes
    "metric-learn": ["metric-learn==0.7.0", "scikit-learn==1.7.2"],
    "scikit-learn": ["scikit-learn==1.9.1"],
    "pytorch-metric-learning": ["torch==2.13.0", "pytorch-metric-learning==2.9.0"],
}


def python(name: str) -> Path:
    """The interpreter of an environment, made on first use."""
    home = HOME / name
    executable, ready = home / "bin" / "python", home / ".ready"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        pip = [str(executable), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        # torch comes first and alone: its pinned version has a build without CUDA
        torch = [package for package in PACKAGES[name] if package.startswith("torch==")]
        for group in filter(None, (torch, [package for package in PACKAGES[name] if package not in torch])):
            subprocess.run([*pip, *group], check=True)
        ready.touch()
    return executable


def run(name: str, code: str, *arguments: str, timeout: float | None = None) -> str:
    """Run code in an environment, in a process of its own; its standard output."""
    done = subprocess.run(
        [str(python(name)), "-c", code, *arguments], capture_output=True, text=True, timeout=timeout, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{name} failed:\n{done.stderr[-2000:]}")
    return done.stdout
