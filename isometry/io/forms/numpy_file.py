"""A Python file that maps rows with NumPy alone."""

from __future__ import annotations

import base64
import textwrap
from pathlib import Path

import numpy as np

from isometry.io.forms.steps import Affine, ExportError, Kernel, Relu, Step, Unit

HEAD = '''"""{title}

    transform(X)    rows (n, {d}) to the space where the learned distance is Euclidean
    distance(X, Y)  learned distances of row i of X and row i of Y

Needs NumPy and nothing else. As a program: python {name} rows.npy mapped.npy
"""

import base64
import sys

import numpy as np

BLOCK = 4096  # rows that are mapped at a time
N_FEATURES = {d}
FEATURE_NAMES = {features}


def _array(shape, text):
    return np.frombuffer(base64.b64decode("".join(text.split())), dtype="<f8").reshape(shape)


'''
BODY = """

def _map(Z):
{lines}
    return Z


def transform(X):
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2 or X.shape[1] != N_FEATURES:
        raise ValueError(f"expected rows of {{N_FEATURES}} features, got an array of shape {{X.shape}}")
    wrong = np.flatnonzero(~np.isfinite(X).all(axis=1))
    if len(wrong):
        raise ValueError(f"{{len(wrong)}} rows hold NaN or infinity, the first is row {{wrong[0]}}")
    blocks = [_map(X[start : start + BLOCK]) for start in range(0, len(X), BLOCK)]
    return np.concatenate(blocks) if blocks else _map(X)


def distance(X, Y):
    return np.linalg.norm(transform(X) - transform(Y), axis=1)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: python {{sys.argv[0]}} rows.npy mapped.npy")
    np.save(sys.argv[2], transform(np.load(sys.argv[1], allow_pickle=False)))
"""
INNER = {
    "linear": "Z = Z @ {l}.T",
    "rbf": "Z = np.exp(-{g} * np.maximum((Z**2).sum(1)[:, None] - 2 * Z @ {l}.T + ({l}**2).sum(1), 0))",
    "laplacian": "Z = np.exp(-{g} * np.stack([np.abs(Z - l).sum(1) for l in {l}], axis=1))",
    "poly": "Z = ({g} * Z @ {l}.T + {c}) ** {e}",
    "polynomial": "Z = ({g} * Z @ {l}.T + {c}) ** {e}",
    "sigmoid": "Z = np.tanh({g} * Z @ {l}.T + {c})",
    "cosine": "Z = _unit(Z) @ _unit({l}).T",
}
UNIT = """

def _unit(Z):
    length = np.linalg.norm(Z, axis=1, keepdims=True)
    return Z / np.where(length > 0, length, 1)
"""


def write_numpy(steps: list[Step], path: Path, about: dict[str, str]) -> None:
    """Arrays as text, and one line of NumPy for each step."""
    arrays: list[str] = []
    lines: list[str] = []

    def array(value: np.ndarray) -> str:
        name = f"A{len(arrays)}"
        text = base64.b64encode(np.ascontiguousarray(value, dtype="<f8").tobytes()).decode()
        wrapped = "\n".join(textwrap.wrap(text, 116))
        arrays.append(f'{name} = _array({value.shape}, """\n{wrapped}\n""")')
        return name

    for step in steps:
        if isinstance(step, Affine):
            shifted = f"(Z - {array(step.shift)})" if step.shift.any() else "Z"
            product = (
                f"{shifted} * {array(step.weight)}" if step.weight.ndim == 1 else f"{shifted} @ {array(step.weight)}.T"
            )
            lines.append(f"Z = {product}" + (f" + {array(step.bias)}" if step.bias.any() else ""))
        elif isinstance(step, Kernel):
            parts = {"l": array(step.landmarks), "g": step.gamma, "c": step.coef0, "e": step.degree}
            lines.append(INNER[step.kind].format(**parts))
        elif isinstance(step, Relu):
            lines.append("Z = np.maximum(Z, 0)")
        elif isinstance(step, Unit):
            lines.append("Z = _unit(Z)")
        else:
            raise ExportError("its network is not made of linear layers and ReLU")
    title = f"The map of a metric learned with isometry {about['isometry']}: {about['metric']}."
    features = about.get("feature_names", "None")
    head = HEAD.format(title=title, d=about["n_features"], name=about["file"], features=features)
    body = BODY.format(lines=textwrap.indent("\n".join(lines), "    "))
    path.write_text(head + "\n".join(arrays) + "\n" + UNIT + body, encoding="utf-8")
