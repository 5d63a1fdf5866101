"""ONNX: ``X`` (n, d) float32 in, ``Z`` (n, p) float32 out, for onnxruntime and every other runtime."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from isometry.io.forms.steps import Affine, ExportError, Kernel, Network, Relu, Step, Unit

OPSET = 18
IR_VERSION = 9  # of the file; runtimes since 2023 read it
TINY = np.finfo(np.float32).tiny


def write_onnx(steps: list[Step], path: Path, about: dict[str, str]) -> None:
    """One graph of standard operators."""
    onnx = _import("onnx")
    if len(steps) == 1 and isinstance(steps[0], Network):
        from isometry.deep.export import write_onnx as write_network

        _import("onnxscript")
        write_network(steps[0].metric, path)
        model = onnx.load(path)
        if not model.graph.input[0].type.tensor_type.shape.dim[0].dim_param:
            raise ExportError("its network takes as many rows as were tried, and no others: x.shape[0] is not len(x)")
    else:
        model = _Graph(onnx).model(steps, int(about["n_features"]))
    for key, value in sorted(about.items()):
        model.metadata_props.add(key=key, value=value)
    model.producer_name = "isometry"
    onnx.checker.check_model(model)
    onnx.save(model, path)


def _import(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f'export as onnx needs {module}: pip install "isometry[export]"', name=module) from error


class _Graph:
    """Collects the nodes and constants of one graph."""

    def __init__(self, onnx: Any):
        self.onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def model(self, steps: list[Step], d: int) -> Any:
        helper, float32 = self.onnx.helper, self.onnx.TensorProto.FLOAT
        last = "X"
        for step in steps:
            last = self.add(step, last)
        self.nodes.append(helper.make_node("Identity", [last], ["Z"]))
        graph = helper.make_graph(
            self.nodes,
            "isometry",
            [helper.make_tensor_value_info("X", float32, ["n", d])],
            [helper.make_tensor_value_info("Z", float32, ["n", None])],
            self.constants,
        )
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)

    def add(self, step: Step, x: str) -> str:
        """The nodes of one step on the tensor x; returns the name of what they give."""
        if isinstance(step, Affine):
            if step.shift.any():
                x = self.node("Sub", x, self.constant(step.shift))
            if step.weight.ndim == 1:
                x = self.node("Mul", x, self.constant(step.weight))
            else:
                x = self.node("MatMul", x, self.constant(step.weight.T))
            return self.node("Add", x, self.constant(step.bias)) if step.bias.any() else x
        if isinstance(step, Relu):
            return self.node("Relu", x)
        if isinstance(step, Unit):
            return self.unit(x)
        assert isinstance(step, Kernel)
        return self.kernel(step, x)

    def kernel(self, step: Kernel, x: str) -> str:
        marks, kind = step.landmarks, step.kind
        if kind == "laplacian":  # (n, 1, d) − (m, d)
            delta = self.node("Sub", self.node("Unsqueeze", x, self.axes(1)), self.constant(marks))
            far = self.node("ReduceSum", self.node("Abs", delta), self.axes(2), keepdims=0)
            return self.node("Exp", self.node("Mul", far, self.constant(-step.gamma)))
        if kind == "cosine":
            length = np.linalg.norm(marks, axis=1, keepdims=True)
            x, marks = self.unit(x), marks / np.where(length > 0, length, 1)
        product = self.node("MatMul", x, self.constant(marks.T))
        if kind in ("linear", "cosine"):
            return product
        if kind == "rbf":
            square = self.node("ReduceSumSquare", x, self.axes(1), keepdims=1)
            twice = self.node("Mul", product, self.constant(-2.0))
            far = self.node("Add", self.node("Add", square, twice), self.constant((marks**2).sum(axis=1)))
            return self.node("Exp", self.node("Mul", self.node("Relu", far), self.constant(-step.gamma)))
        inner = self.node("Add", self.node("Mul", product, self.constant(step.gamma)), self.constant(step.coef0))
        return self.node("Tanh", inner) if kind == "sigmoid" else self.node("Pow", inner, self.constant(step.degree))

    def unit(self, x: str) -> str:
        length = self.node("ReduceL2", x, self.axes(1), keepdims=1)
        return self.node("Div", x, self.node("Max", length, self.constant(TINY)))

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def constant(self, value: Any) -> str:
        return self._constant(np.asarray(value, dtype=np.float32))

    def axes(self, axis: int) -> str:
        return self._constant(np.array([axis], dtype=np.int64))

    def _constant(self, value: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), name))
        return name
