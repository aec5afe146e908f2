"""`--to onnx`: a graph a rule, and what a program around them has to know. Needs hilp[onnx].

| file | takes | gives |
|---|---|---|
| `act.onnx` | observation, skill | action |
| `encode.onnx` | observation | latent, where the method has one |
| `target.onnx` | observation: the goal | target: what stands for the goal |
| `goal.onnx` | observation, target | action, on the way to the goal |
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hilp import storage
from hilp.errors import HilpError
from hilp.export import checks, graphs, policy_programs
from hilp.export.programs import Program
from hilp.policy.policy import FoundationPolicy

FORMAT, VERSION = "hilp-onnx", 1
ABOUT, BANK = "policy.json", "bank.safetensors"


def write(policy: FoundationPolicy, folder: Path) -> dict[str, Any]:
    """Write all files into a folder; what was written, as facts."""
    graphs.require_onnx()
    exported = policy_programs.of_policy(policy, ("act", "encode", "goal_skill", "act_towards"))
    made = graphs_of(policy, exported)
    about = {"method": policy.method, "fingerprint": policy.fingerprint}
    for name, (program, output) in made.items():
        model = graphs.graph(name, program, exported.arrays, _shapes(policy), output, about)
        storage.write_bytes(folder / f"{name}.onnx", [model.SerializeToString(deterministic=True)])
    columns = policy.bank.columns() if len(policy.bank) else {}
    if columns and policy.has_rule("encode"):
        columns["latents"] = policy.midpoints.latents
    storage.write_arrays(folder / BANK, columns, about)
    storage.write_json(folder / ABOUT, _about(policy, made))
    worst = checks.hold(policy, {rule: _session(folder / f"{name}.onnx", program)
                                 for rule, (name, program) in _rules(made).items()})  # fmt: skip
    size = sum(file.stat().st_size for file in folder.iterdir())
    refused = sorted(exported.refused.values())
    return {"graphs": sorted(made), "refused": refused, "megabytes": round(size / 1e6, 2), "largest_difference": worst}


Made = dict[
    str, tuple[Program, tuple[str, int]]
]  # by the name of a graph: its program, the name and size of its output


def graphs_of(policy: FoundationPolicy, exported: policy_programs.Exported) -> Made:
    """Which graphs a policy has."""
    programs, skills, actions = exported.programs, policy.skill_dim, policy.spec.action_dim
    latents = _latents(policy)
    made: Made = {"act": (programs["act"], ("action", actions))}
    if "encode" in programs:
        made["encode"] = (programs["encode"], ("latent", latents))
    if "act_towards" in programs:
        made |= {
            "target": (programs["encode"], ("target", latents)),
            "goal": (programs["act_towards"], ("action", actions)),
        }
    elif "goal_skill" in programs:
        act = programs["act"]
        named = Program(tuple("target" if one == "skill" else one for one in act.inputs), act.steps, act.output)
        made |= {"target": (programs["goal_skill"], ("target", skills)), "goal": (named, ("action", actions))}
    return made


def _latents(policy: FoundationPolicy) -> int:
    return policy_programs.latent_dim(policy.core, policy.spec, policy.preparation) if policy.has_rule("encode") else 0


def _rules(made: Made) -> dict[str, tuple[str, Program]]:
    """The rule of the policy that each graph stands for."""
    by_direction = "encode" in made and "goal" in made
    rules = (
        {"act": "act", "encode": "encode", "act_towards": "goal"}
        if by_direction
        else {"act": "act", "goal_skill": "target"}
    )
    rules |= {} if by_direction else {"encode": "encode"}
    return {rule: (name, made[name][0]) for rule, name in rules.items() if name in made}


def _shapes(policy: FoundationPolicy) -> dict[str, tuple[tuple[int, ...], str]]:
    """The shape of a row of every input, and its type."""
    spec = policy.spec
    skill = ((policy.skill_dim,), "float32")
    target = ((_latents(policy),), "float32") if policy.has_rule("goal_direction") else skill
    found = {"skill": skill, "target": target, "observation": ((spec.observation_dim,), "float32")}
    return found | {f"observation/{name}": (shape, kind) for name, shape, kind in spec.parts}


def _about(policy: FoundationPolicy, made: Made) -> dict[str, Any]:
    spec, shapes = policy.spec, _shapes(policy)
    return {
        "format": FORMAT,
        "version": VERSION,
        "method": policy.method,
        "fingerprint": policy.fingerprint,
        "observation_dim": spec.observation_dim,
        "action_dim": spec.action_dim,
        "skill_dim": policy.skill_dim,
        "discount": policy.discount if policy.has_rule("discount") else None,
        "observation_parts": [[name, list(shape)] for name, shape in policy.observation_parts],
        "graphs": {
            name: {
                "inputs": {one: ["rows", *shapes[one][0]] for one in program.inputs if 0 not in shapes[one][0]},
                "output": {output[0]: ["rows", output[1]]},
            }
            for name, (program, output) in made.items()
        },
    }


def _session(path: Path, program: Program) -> Any:
    """A graph as onnxruntime runs it."""
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has errors of its own for everything
        raise HilpError(f"onnxruntime does not take {path.name}: {' '.join(str(error).split())[:300]}") from error
    names = {one.name for one in session.get_inputs()}

    def run(*inputs: np.ndarray) -> np.ndarray:
        given = {name: array for name, array in zip(program.inputs, inputs, strict=True) if name in names}
        found: np.ndarray = session.run(None, given)[0]
        return found

    return run
