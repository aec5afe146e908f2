"""`--to onnx`: a graph a rule, and what a program around them has to know. Needs hilp[onnx].

| file | takes | gives |
|---|---|---|
| `act.onnx` | observation, skill | action; of a policy with chunks, the next few of them |
| `encode.onnx` | observation | latent, where the method has one |
| `target.onnx` | observation: the goal | target: what stands for the goal |
| `goal.onnx` | observation, target | action, on the way to the goal |

A discrete action is a whole number, and comes with `scores`, one for each choice.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hilp import storage
from hilp.errors import HilpError
from hilp.export import policy_programs
from hilp.export.programs import Program
from hilp.policy.policy import FoundationPolicy

FORMAT, VERSION = "hilp-onnx", 1
ABOUT, BANK = "policy.json", "bank.safetensors"
OPSET, IR_VERSION = 17, 8
KINDS = {"float32": 1, "uint8": 2, "int64": 7, "bool": 9, "float64": 11}  # as ONNX numbers types

Output = tuple[str, *tuple[int, ...]]  # name, and the shape of a row
SCORES = "scores"  # what a policy of discrete actions gives beside `action`
Made = dict[str, tuple[Program, Output]]  # by the name of a graph
Shapes = dict[str, tuple[tuple[int, ...], str]]  # of a row of every input, and its type


def write(policy: FoundationPolicy, folder: Path) -> dict[str, Any]:
    """Write all files into a folder; returns what was written."""
    require_onnx()
    exported = policy_programs.programs_of(policy, policy.method, ("act", "encode", "goal_skill", "act_towards"))
    latents = policy_programs.latent_dim(policy) if policy.has_rule("encode") else 0
    made = _graphs(policy, exported.programs, latents)
    vectors = {"skill": policy.skill_dim, "observation": policy.spec.observation_dim}
    vectors["target"] = made["target"][1][-1] if "target" in made else 0
    shapes: Shapes = {name: ((size,), "float32") for name, size in vectors.items()}
    shapes |= {f"observation/{name}": (shape, kind) for name, shape, kind in policy.spec.parts}
    about = {"method": policy.method, "fingerprint": policy.fingerprint}
    for name, (program, output) in made.items():
        model = _model(name, program, exported.arrays, shapes, output, about)
        storage.write_bytes(folder / f"{name}.onnx", [model.SerializeToString(deterministic=True)])
    storage.write_arrays(folder / BANK, _kept(policy), about)
    graphs = {name: _signature(program, output, shapes) for name, (program, output) in made.items()}
    spec = policy.spec
    sizes = {"observation_dim": spec.observation_dim, "action_dim": spec.action_dim}
    sizes |= {"choices": spec.choices} if spec.choices else {}
    sizes |= {"history": spec.history} if spec.history > 1 else {}
    note = {"format": FORMAT, "version": VERSION, **policy_programs.described(policy), **sizes, "graphs": graphs}
    storage.write_json(folder / ABOUT, note)
    goal = {"act_towards": "goal"} if "act_towards" in exported.programs else {"goal_skill": "target"}
    rules = {"act": "act", "encode": "encode", **goal}
    sessions = {rule: _session(folder / f"{name}.onnx", made[name][0]) for rule, name in rules.items() if name in made}
    worst = policy_programs.hold(policy, sessions)
    size = sum(file.stat().st_size for file in folder.iterdir())
    refused = sorted(exported.refused.values())
    return {"graphs": sorted(made), "refused": refused, "megabytes": round(size / 1e6, 2), "largest_difference": worst}


def _kept(policy: FoundationPolicy) -> dict[str, np.ndarray]:
    if not len(policy.bank):
        return {}
    latents = {"latents": policy.midpoints.latents} if policy.has_rule("encode") else {}
    return {**policy.bank.columns(), **latents}


def _signature(program: Program, output: Output, shapes: Shapes) -> dict[str, Any]:
    inputs = {one: ["rows", *shapes[one][0]] for one in program.inputs if 0 not in shapes[one][0]}
    name, *row = output
    scored = {"action": ["rows", *row[:-1]]} if name == SCORES else {}
    return {"inputs": inputs, "output": {**scored, name: ["rows", *row]}}


def require_onnx() -> Any:
    """The package `onnx`; one line where it is missing."""
    try:
        import onnx
        import onnxruntime  # noqa: F401
    except ImportError as error:
        raise HilpError(f"--to onnx needs the package {error.name}: pip install 'hilp[onnx]'") from error
    return onnx


def _graphs(policy: FoundationPolicy, programs: Mapping[str, Program], latents: int) -> Made:
    chunk = () if policy.chunk == 1 else (policy.chunk,)
    choices = policy.spec.choices
    actions: Output = (SCORES, *chunk, choices) if choices else ("action", *chunk, policy.spec.action_dim)
    made: Made = {"act": (programs["act"], actions)}
    if "encode" in programs:
        made["encode"] = (programs["encode"], ("latent", latents))
    if "act_towards" in programs:
        made["target"] = (programs["encode"], ("target", latents))
        made["goal"] = (programs["act_towards"], actions)
    elif "goal_skill" in programs:
        act = programs["act"]
        made["target"] = (programs["goal_skill"], ("target", policy.skill_dim))
        made["goal"] = (replace(act, inputs=tuple("target" if one == "skill" else one for one in act.inputs)), actions)
    return made


def _session(path: Path, program: Program) -> Callable[..., np.ndarray]:
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has errors of its own for everything
        raise HilpError(f"onnxruntime does not take {path.name}: {' '.join(str(error).split())[:300]}") from error
    names = {one.name for one in session.get_inputs()}
    gives = [SCORES] if SCORES in {one.name for one in session.get_outputs()} else None

    def run(*inputs: np.ndarray) -> np.ndarray:
        known = {name: array for name, array in zip(program.inputs, inputs, strict=True) if name in names}
        found: np.ndarray = session.run(gives, known)[0]
        return found

    return run


PLAIN = {name: name.title() for name in ("add", "sub", "mul", "div", "max", "min", "tanh", "exp", "log", "sqrt", "abs",
                                         "sin", "where", "and", "or", "not")}  # fmt: skip
PLAIN |= {"matmul": "MatMul", "gt": "Greater", "ge": "GreaterOrEqual", "lt": "Less", "le": "LessOrEqual", "eq": "Equal"}
Node = tuple[str, dict[str, Any], list[list[int]]]  # operator, attributes, integers that it takes as further inputs
CHANNELS_FIRST: Node = ("Transpose", {"perm": [0, 3, 1, 2]}, [])  # as ONNX has pictures
CHANNELS_LAST: Node = ("Transpose", {"perm": [0, 2, 3, 1]}, [])


def _over(parameters: dict[str, Any]) -> dict[str, Any]:
    """What a node reduces over: the numbers of rows, which are rows of one then, or axes of a value with more."""
    return {"axes": parameters.get("axes", [1]), "keepdims": int(not parameters)}


def _windows(how: dict[str, Any]) -> dict[str, Any]:
    low, high = zip(*how["padding"], strict=True)
    return {"strides": how["strides"], "pads": [*low, *high]}


# Steps with parameters -> nodes, each of which takes what the one before it gives.
WITH_PARAMETERS: dict[str, Callable[[dict[str, Any]], list[Node]]] = {
    "sum": lambda how: [("ReduceSum", {"keepdims": int(not how)}, [how.get("axes", [1])])],
    "largest": lambda how: [("ReduceMax", _over(how), [])],
    "any": lambda how: [  # ONNX takes the largest of numbers, not of comparisons
        ("Cast", {"to": KINDS["float32"]}, []), ("ReduceMax", _over(how), []), ("Cast", {"to": KINDS["bool"]}, []),
    ],
    "expand": lambda how: [("Expand", {}, [[1, *how["shape"]]])],  # 1: as many as there are
    "reshape": lambda how: [("Reshape", {}, [[0, *how["shape"]]])],  # 0: as many as there are
    "pad": lambda how: [("Pad", {}, [[0, how["before"], 0, how["behind"]]])],
    "concat": lambda how: [("Concat", {"axis": 1}, [])],
    "flatten": lambda how: [("Flatten", {"axis": 1}, [])],
    "transpose": lambda how: [("Transpose", {"perm": how["axes"]}, [])],
    "take": lambda how: [("Gather", {"axis": 1}, [how["columns"]])],
    "slice": lambda how: [("Slice", {}, [[how["first"]], [how["last"]], [1]])],
    "cast": lambda how: [("Cast", {"to": KINDS[how["to"]]}, [])],
    "conv": lambda how: [CHANNELS_FIRST, ("Conv", _windows(how), []), CHANNELS_LAST],
    "pool": lambda how: [
        CHANNELS_FIRST, ("MaxPool", {"kernel_shape": how["sizes"], **_windows(how)}, []), CHANNELS_LAST,
    ],
}  # fmt: skip


def _model(
    name: str,
    program: Program,
    arrays: Mapping[str, np.ndarray],
    shapes: Shapes,
    output: Output,
    about: Mapping[str, str],
) -> Any:
    onnx = require_onnx()
    made = _Graph(onnx, program, arrays)
    for number, step in enumerate(program.steps, len(program.inputs)):
        made.add(number, step)
    made.nodes.append(onnx.helper.make_node("Identity", [made.named(program.output)], [output[0]]))
    used = {operand for node in made.nodes for operand in node.input}
    described, taken = onnx.helper.make_tensor_value_info, [one for one in program.inputs if one in used]
    inputs = [described(one, KINDS[shapes[one][1]], ["rows", *shapes[one][0]]) for one in taken]
    outputs = [described(output[0], KINDS["float32"], ["rows", *output[1:]])]
    gives, *row = output
    if gives == SCORES:  # the action comes first
        made.nodes.append(onnx.helper.make_node("ArgMax", [SCORES], ["action"], axis=len(row), keepdims=0))
        outputs.insert(0, described("action", KINDS["int64"], ["rows", *row[:-1]]))
    built = onnx.helper.make_graph(made.nodes, name, inputs, outputs, list(made.initializers.values()))
    opset = [onnx.helper.make_opsetid("", OPSET)]
    model = onnx.helper.make_model(built, opset_imports=opset, producer_name="hilp", ir_version=IR_VERSION)
    onnx.helper.set_model_props(model, dict(about))
    onnx.checker.check_model(model, full_check=True)
    return model


def _is_value(operand: Any) -> bool:  # of a step; arrays go by their names, and numbers are floats
    return isinstance(operand, int)


class _Graph:
    """Nodes and constants of a graph that is being built."""

    def __init__(self, onnx: Any, program: Program, arrays: Mapping[str, np.ndarray]):
        self.onnx, self.program, self.arrays = onnx, program, arrays
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}
        self.doubles: set[int] = set()  # values that are float64: angles

    def named(self, operand: Any, double: bool = False) -> str:
        """The name of a value; arrays and numbers become constants of the graph."""
        if _is_value(operand):
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
        name, *operands = step
        how = operands.pop() if isinstance(operands[-1], dict) else {}
        kernel = operands.pop() if name == "conv" else ""
        double = not self.doubles.isdisjoint(filter(_is_value, operands))
        if how.get("to", "float64" if double else None) == "float64":
            self.doubles.add(number)
        nodes = WITH_PARAMETERS[name](how) if name in WITH_PARAMETERS else [(PLAIN[name], {}, [])]
        inputs = [self.named(operand, double) for operand in operands]
        for left, (operator, attributes, integers) in zip(reversed(range(len(nodes))), nodes, strict=True):
            inputs += [self.constant(f"integers {values}", np.array(values, np.int64)) for values in integers]
            if operator == "Conv":
                inputs.append(self.constant(f"{kernel}, turned", self.arrays[kernel].transpose(3, 2, 0, 1)))
            output = f"value.{number}.{left}" if left else f"value.{number}"
            self.nodes.append(self.onnx.helper.make_node(operator, inputs, [output], **attributes))
            inputs = [output]
