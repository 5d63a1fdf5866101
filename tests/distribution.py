"""Builds the wheel and the sdist into dist/, checks them, and tries the wheel in an empty environment: `make dist`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
TRIED = """
import isometry
from sklearn.datasets import load_wine

X, y = load_wine(return_X_y=True)
metric = isometry.RCA().fit(X, y)
metric.save("metric.safetensors")
assert isometry.load("metric.safetensors").transform(X).shape == X.shape
assert "site-packages" in isometry.__file__, isometry.__file__
print("isometry", isometry.__version__, "learns, saves and loads")
"""


def run(*words: str | Path, cwd: Path = ROOT) -> None:
    print("$", *(Path(word).name if isinstance(word, Path) else word for word in words), flush=True)
    subprocess.run([str(word) for word in words], cwd=cwd, check=True)


def build() -> tuple[Path, Path]:
    """The sdist, and the wheel made from it, by the tools of this environment."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist")
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    return wheel, sdist


def try_out(wheel: Path) -> None:
    """In an environment that holds nothing but the wheel and what it asks for, outside of the checkout."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        venv.create(home / "env", with_pip=True)
        python = home / "env" / "bin" / "python"
        pip = (python, "-m", "pip", "--disable-pip-version-check", "--quiet")
        run(*pip, "install", "--constraint", ROOT / "constraints.txt", f"{wheel}[cli]", cwd=home)
        run(python, "-c", TRIED, cwd=home)
        command = home / "env" / "bin" / "isometry"
        run(command, "--version", cwd=home)
        run(
            command,
            "compare",
            "digits",
            "--sample",
            "300",
            "--folds",
            "3",
            "--methods",
            "RCA,GMML",
            "--report",
            "report",
            cwd=home,
        )
        assert (home / "report" / "index.html").stat().st_size > 10_000


def main() -> None:
    wheel, sdist = build()
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    try_out(wheel)
    for path in (wheel, sdist):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
