"""`--to numpy`: arrays, programs and bank in one file, and the runtime next to it, for robots that have numpy alone.

The runtime is a package `hilp_runtime`: copies of `hilp.prompts` and of the few numpy-only modules that it builds on.
"""

import importlib.util
import re
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hilp import runs, storage
from hilp.errors import HilpError
from hilp.export import policy_programs, runtime
from hilp.policy.policy import FoundationPolicy
from hilp.prompts import promptable
from hilp.prompts.agent import has_ways

RUNTIME, PROMPTS = "hilp_runtime", "prompts"
SOURCE = Path(runtime.__file__).parent.parent  # the package hilp
COPIED = ("errors.py", "trees.py", "spec.py", "data/rewards.py", "storage/arrays.py", "storage/atomic.py")


def write(policy: FoundationPolicy, folder: Path, prompts: list[Path]) -> dict[str, Any]:
    """Write all files into a folder; returns what was written."""
    exported = policy_programs.programs_of(policy, policy.method)
    has_own_graph = has_ways(policy) and not {"act_between", "steps"}.isdisjoint(exported.programs)
    graph = policy.planner.graph.columns() if has_own_graph else {}
    note = {
        "format": runtime.FORMAT,
        "version": runtime.VERSION,
        **policy_programs.described(policy),
        "spec": policy.spec.to_json(),
        "transform": None if policy.transform is None else policy.transform.to_json(),
        "skill_horizon": policy.skill_horizon,
        "stride": policy.stride,
        "trained_graph": policy.graph is not None and has_own_graph,
        "refused": exported.refused,
        "programs": {name: asdict(program) for name, program in exported.programs.items()},
    }
    storage.write_arrays(folder / runtime.POLICY, {**exported.arrays, **_kept(policy, graph)}, note)
    copy_runtime(folder)
    module = load(folder)
    theirs = module.load(folder)
    worst = policy_programs.hold(policy, theirs.rules)
    if graph and not policy.plans_by_steps and "distance" not in exported.refused:
        worst = max(worst, policy_programs.hold_planner(policy.planner, theirs.planner))
    for path in prompts:
        target = folder / PROMPTS / _name(path)
        _write_prompt(policy, path, target)
        try:
            theirs.load_prompt(target)
        except module.HilpError as error:  # the runtime's own class of this name
            raise HilpError(f"{path}: {error}") from error
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return {
        "rules": sorted(exported.programs),
        "refused": sorted(exported.refused.values()),
        "prompts": [_name(path) for path in prompts],
        "megabytes": round(size / 1e6, 2),
        "largest_difference": worst,
    }


def _kept(policy: FoundationPolicy, graph: dict[str, Any]) -> dict[str, Any]:
    """What a policy keeps of its data; latents to the bit, because whether a state is near enough is a yes or a no."""
    kept = {f"bank.{name}": column for name, column in policy.bank.columns().items()}
    if len(policy.bank) and policy.has_rule("goal_direction"):
        kept["bank.latents"] = policy.midpoints.latents
    return kept | {f"graph.{name}": column for name, column in graph.items()}


def copy_runtime(folder: Path) -> None:
    """The package hilp_runtime: sources of hilp that need numpy alone, under another name."""
    prompts = [f"prompts/{path.name}" for path in sorted((SOURCE / "prompts").glob("*.py"))]
    sources = {name: (SOURCE / name).read_text() for name in (*COPIED, *prompts)}
    sources |= {"data/__init__.py": "", "storage/__init__.py": "", "__init__.py": Path(runtime.__file__).read_text()}
    for name, text in sources.items():
        target = folder / RUNTIME / name
        target.parent.mkdir(parents=True, exist_ok=True)
        storage.write_text(target, re.sub(r"^(\s*)(from|import) hilp\b", rf"\1\2 {RUNTIME}", text, flags=re.M))


def load(folder: Path) -> Any:
    """The runtime of a folder, as a module of its own."""
    place = folder / RUNTIME / "__init__.py"
    spec = importlib.util.spec_from_file_location(RUNTIME, place, submodule_search_locations=[str(place.parent)])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # nothing but the export in its folder
    before = {key: sys.modules.pop(key) for key in list(sys.modules) if key.partition(".")[0] == RUNTIME}
    sys.modules[RUNTIME] = module
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = written
        for key in [key for key in sys.modules if key.partition(".")[0] == RUNTIME]:
            del sys.modules[key]
        sys.modules.update(before)
    return module


def _name(path: Path) -> str:
    """What a prompt is called in an export; one that was trained in a folder by the name of that folder."""
    return f"{path.resolve().name}.safetensors" if path.is_dir() else path.name


def _write_prompt(policy: FoundationPolicy, path: Path, target: Path) -> None:
    """A saved prompt as the runtime takes it; a high level becomes a program."""

    def high_level(*saved: Any) -> Any:
        """The high level of a hierarchy, also of one inside of another prompt, as what is exported of it."""
        high = policy.high_level(*saved)
        made = policy_programs.programs_of(high, "the high level", wanted=("act",))
        packed = made.arrays, {"steps": high.steps, "program": asdict(made.programs["act"])}
        return SimpleNamespace(steps=high.steps, about=high.about, packed=lambda: packed)

    prompt = promptable.load(policy, runs.find_prompt(path) if path.is_dir() else path, high_level)
    target.parent.mkdir(exist_ok=True)
    if target.exists():
        raise HilpError(f"two prompts are called {target.name}: rename one of them")
    prompt.save(target)
