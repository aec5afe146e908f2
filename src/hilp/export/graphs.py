"""Programs as ONNX graphs: one node a step, any number of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hilp.errors import HilpError
from hilp.export.programs import Program

OPSET, IR_VERSION = 17, 8
NODES = {  # steps -> operators; those with parameters are in `_node`
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "max": "Max", "min": "Min", "tanh": "Tanh", "exp": "Exp",
    "log": "Log", "sqrt": "Sqrt", "abs": "Abs", "sin": "Sin", "matmul": "MatMul", "where": "Where", "gt": "Greater",
    "ge": "GreaterOrEqual", "lt": "Less", "le": "LessOrEqual", "eq": "Equal",
    "and": "And", "or": "Or", "not": "Not",
}  # fmt: skip


def _over(parameters: dict[str, Any]) -> dict[str, Any]:
    """What a node reduces over: the numbers of rows, which are rows of one then, or axes of a value with more."""
    return {"axes": parameters.get("axes", [1]), "keepdims": int(not parameters)}


def require_onnx() -> Any:
    """The package `onnx`; one line where it is missing."""
    try:
        import onnx
        import onnxruntime  # noqa: F401
    except ImportError as error:
        raise HilpError(f"--to onnx needs the package {error.name}: pip install 'hilp[onnx]'") from error
    return onnx


def graph(
    name: str,
    program: Program,
    arrays: Mapping[str, np.ndarray],
    shapes: Mapping[str, tuple[tuple[int, ...], str]],
    output: tuple[str, int],
    about: Mapping[str, str],
) -> Any:
    """A model of one program. shapes: of a row of each input, and its type; output: its name and numbers."""
    onnx = require_onnx()
    made = _Graph(onnx, program, arrays)
    for number, step in enumerate(program.steps, len(program.inputs)):
        made.add(number, step)
    made.nodes.append(onnx.helper.make_node("Identity", [made.named(program.output)], [output[0]]))
    used = {operand for node in made.nodes for operand in node.input}
    kinds = {"float32": onnx.TensorProto.FLOAT, "uint8": onnx.TensorProto.UINT8}
    inputs = [
        onnx.helper.make_tensor_value_info(one, kinds[shapes[one][1]], ["rows", *shapes[one][0]])
        for one in program.inputs
        if one in used
    ]
    outputs = [onnx.helper.make_tensor_value_info(output[0], onnx.TensorProto.FLOAT, ["rows", output[1]])]
    built = onnx.helper.make_graph(made.nodes, name, inputs, outputs, list(made.initializers.values()))
    opset = [onnx.helper.make_opsetid("", OPSET)]
    model = onnx.helper.make_model(built, opset_imports=opset, producer_name="hilp", ir_version=IR_VERSION)
    onnx.helper.set_model_props(model, dict(about))
    onnx.checker.check_model(model, full_check=True)
    return model


class _Graph:
    """Nodes and constants of a graph that is being built."""

    def __init__(self, onnx: Any, program: Program, arrays: Mapping[str, np.ndarray]):
        self.onnx, self.program, self.arrays = onnx, program, arrays
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}
        self.doubles: set[int] = set()  # values that are float64: angles

    def named(self, operand: Any, double: bool = False) -> str:
        """The name of a value; arrays and numbers become constants of the graph."""
        if isinstance(operand, int):
            inputs = self.program.inputs
            return inputs[operand] if operand < len(inputs) else f"value.{operand}"
        if isinstance(operand, str):
            return self.constant(operand, self.arrays[operand])
        kind = np.float64 if double else np.float32
        return self.constant(f"{operand!r} as {np.dtype(kind).name}", np.array(operand, kind))

    def constant(self, name: str, array: np.ndarray) -> str:
        if name not in self.initializers:
            self.initializers[name] = self.onnx.numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def add(self, number: int, step: list[Any]) -> None:
        """The node of a step."""
        name, *operands = step
        parameters = operands.pop() if isinstance(operands[-1], dict) else {}
        if name in ("conv", "pool"):
            self.over_pictures(name, operands, parameters, number)
            return
        if name == "any":
            self.over_comparisons(operands, parameters, number)
            return
        double = any(operand in self.doubles for operand in operands if isinstance(operand, int))
        inputs = [self.named(operand, double) for operand in operands]
        if name == "cast":
            double = parameters["to"] == "float64"
            kind = self.onnx.TensorProto.DOUBLE if double else self.onnx.TensorProto.FLOAT
            node = self.made("Cast", inputs, number, to=kind)
        elif name == "sum":
            over = _over(parameters)
            axes = self.integers(over["axes"])
            node = self.made("ReduceSum", [*inputs, axes], number, keepdims=over["keepdims"])
        elif name == "largest":
            node = self.made("ReduceMax", inputs, number, **_over(parameters))
        elif name == "expand":
            node = self.made("Expand", [*inputs, self.integers([1, *parameters["shape"]])], number)  # 1: as it is
        elif name == "pad":
            ends = [0, parameters["before"], 0, parameters["behind"]]
            node = self.made("Pad", [*inputs, self.integers(ends)], number)
        elif name == "concat":
            node = self.made("Concat", inputs, number, axis=1)
        elif name == "flatten":
            node = self.made("Flatten", inputs, number, axis=1)
        elif name == "reshape":
            node = self.made("Reshape", [*inputs, self.integers([0, *parameters["shape"]])], number)  # 0: as it is
        elif name == "transpose":
            node = self.made("Transpose", inputs, number, perm=parameters["axes"])
        elif name == "take":
            node = self.made("Gather", [*inputs, self.integers(parameters["columns"])], number, axis=1)
        elif name == "slice":
            ends = [self.integers([one]) for one in (parameters["first"], parameters["last"], 1)]
            node = self.made("Slice", [*inputs, *ends], number)
        else:
            node = self.made(NODES[name], inputs, number)
        self.doubles |= {number} if double else set()
        self.nodes.append(node)

    def over_pictures(self, name: str, operands: list[Any], parameters: dict[str, Any], number: int) -> None:
        """The nodes of a convolution or a pool; ONNX has the channels of a picture before its height."""
        node, (low, high) = self.onnx.helper.make_node, zip(*parameters["padding"], strict=True)
        before, behind = f"value.{number}.before", f"value.{number}.behind"
        how = {"strides": parameters["strides"], "pads": [*low, *high]}
        if name == "conv":
            kernel = self.constant(f"{operands[1]}, turned", self.arrays[operands[1]].transpose(3, 2, 0, 1))
            inner = node("Conv", [before, kernel], [behind], **how)
        else:
            inner = node("MaxPool", [before], [behind], kernel_shape=parameters["sizes"], **how)
        first = node("Transpose", [self.named(operands[0])], [before], perm=[0, 3, 1, 2])
        self.nodes += [first, inner, self.made("Transpose", [behind], number, perm=[0, 2, 3, 1])]

    def over_comparisons(self, operands: list[Any], parameters: dict[str, Any], number: int) -> None:
        """The nodes of `any`: ONNX takes the largest of numbers, not of comparisons."""
        node, (before, behind) = self.onnx.helper.make_node, (f"value.{number}.{at}" for at in ("before", "behind"))
        self.nodes += [
            node("Cast", [self.named(operands[0])], [before], to=self.onnx.TensorProto.FLOAT),
            node("ReduceMax", [before], [behind], **_over(parameters)),
            self.made("Cast", [behind], number, to=self.onnx.TensorProto.BOOL),
        ]

    def integers(self, values: list[int]) -> str:
        return self.constant(f"integers {values}", np.array(values, np.int64))

    def made(self, operator: str, inputs: list[str], number: int, **attributes: Any) -> Any:
        return self.onnx.helper.make_node(operator, inputs, [f"value.{number}"], **attributes)
