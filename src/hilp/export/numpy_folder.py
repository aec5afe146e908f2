"""`--to numpy`: arrays, programs and bank in one file, and the runtime beside it, for robots that have numpy alone."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from hilp import storage
from hilp.errors import HilpError
from hilp.export import bundle, checks, hilp_runtime, policies
from hilp.policy.agent import has_graph
from hilp.policy.hierarchy import HierarchyPrompt
from hilp.policy.policy import FoundationPolicy

KINDS = ("goal", "skill", "hierarchy", "prior", "graph")  # of prompts that go along
RUNTIME, PROMPTS = "hilp_runtime.py", "prompts"


def write(policy: FoundationPolicy, folder: Path, prompts: list[Path]) -> dict[str, Any]:
    """Write all files into a folder; what was written, as facts."""
    exported = policies.of_policy(policy)
    spec = policy.spec
    graph = policy.planner.graph.columns() if has_graph(policy) and "act_between" in exported.programs else {}
    note = {
        "format": hilp_runtime.FORMAT,
        "version": hilp_runtime.VERSION,
        "method": policy.method,
        "fingerprint": policy.fingerprint,
        "skill_dim": policy.skill_dim,
        "observation_dim": spec.observation_dim,
        "action_dim": spec.action_dim,
        "parts": [[name, list(shape), kind] for name, shape, kind in spec.parts],
        "observation_parts": [[name, list(shape)] for name, shape in policy.observation_parts],
        "discount": policy.discount if policy.has_rule("discount") else None,
        "skill_horizon": policy.skill_horizon,
        "stride": policy.stride,
        "bank": len(policy.bank),
        "graph": sorted(graph),
        "auto": "graph" if policy.graph is not None and policy.planner.is_fine_enough else "midpoints",
        "directed": policy.has_rule("distance"),
        "refused": exported.refused,
        "programs": {name: program.to_json() for name, program in exported.programs.items()},
    }
    kept = {f"bank.{name}": column for name, column in policy.bank.columns().items()} if len(policy.bank) else {}
    if len(policy.bank) and policy.has_rule("goal_direction"):
        kept["bank.latents"] = policy.midpoints.latents  # to the bit: whether a state is near enough is a yes or a no
    kept |= {f"graph.{name}": column for name, column in graph.items()}
    storage.write_arrays(folder / hilp_runtime.POLICY, {**exported.arrays, **kept}, note)
    storage.write_text(folder / RUNTIME, bundle.runtime())
    runtime = load(folder)
    theirs = runtime.load(folder)
    worst = checks.hold(policy, theirs.rules)
    if graph:
        worst = max(worst, checks.hold_planner(policy.planner, theirs.planner))
    for path in prompts:
        target = folder / PROMPTS / _name(path)
        _write_prompt(policy, path, target)
        try:
            theirs.load_prompt(target)
        except runtime.HilpError as error:  # the runtime's own class of this name
            raise HilpError(f"{path}: {error}") from error
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return {
        "rules": sorted(exported.programs),
        "refused": sorted(exported.refused.values()),
        "prompts": [_name(path) for path in prompts],
        "megabytes": round(size / 1e6, 2),
        "largest_difference": worst,
    }


def load(folder: Path) -> Any:
    """The runtime of a folder, as a module of its own."""
    spec = importlib.util.spec_from_file_location("hilp_runtime", folder / RUNTIME)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # nothing but the export in its folder
    before = sys.modules.get(spec.name)
    sys.modules[spec.name] = module  # where dataclasses look up the types of their fields
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = written
        del sys.modules[spec.name]
        if before is not None:
            sys.modules[spec.name] = before
    return module


def _name(path: Path) -> str:
    """What a prompt is called in an export; one that was trained in a folder by the name of that folder."""
    return f"{path.resolve().name}.safetensors" if path.is_dir() else path.name


def _write_prompt(policy: FoundationPolicy, path: Path, target: Path) -> None:
    """A saved prompt as the runtime takes it; a high level becomes a program."""
    prompt = policy.load_prompt(path)
    target.parent.mkdir(exist_ok=True)
    if target.exists():
        raise HilpError(f"two prompts are called {target.name}: rename one of them")
    if prompt.kind not in KINDS:
        raise HilpError(
            f"{path} is a prompt of the kind '{prompt.kind}', which the runtime does not know: {', '.join(KINDS)}"
        )
    if not isinstance(prompt, HierarchyPrompt):
        prompt.save(target)
        return
    high = prompt.high
    program = policies.programs_of(high.core, high.spec, high.preparation, "the high level", wanted=("act",))
    note = {
        "kind": "exported hierarchy",
        "fingerprint": prompt.fingerprint,
        "steps": high.k * high.preparation.stride,
        "program": program.programs["act"].to_json(),
        "about": high.about,
    }
    storage.write_arrays(target, program.arrays, note)
