"""Policies that leave JAX behind: every method, in a process that has numpy alone and in onnxruntime."""

from __future__ import annotations

import ast
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hilp
from hilp import export, storage, testing
from hilp.data.transforms import ObservationTransform
from hilp.export import numpy_folder, policy_programs, programs
from hilp.learning import methods
from hilp.learning.methods import directed
from hilp.policy.policy import HighLevel
from hilp.policy.preparation import Preparation
from hilp.prompts.bank import Bank
from hilp.prompts.graph import Graph, by_scipy, by_sweeps
from hilp.prompts.skills import HierarchyPrompt
from hilp.spec import Spec
from test_methods import FIRST, config_of

NAMES = sorted(methods.MODULES)
DATA = testing.small_data()


def untrained(name: str, data: Any = DATA, **settings: Any) -> hilp.FoundationPolicy:
    """A policy of a method with fresh weights, a normaliser, actions in units of their own, and a bank."""
    config = replace(config_of(name), **settings)
    method = methods.of(config)
    preparation = replace(
        Preparation.of(data, True),
        action_center=np.array([1.0, -2.0], np.float32),
        action_half_range=np.array([0.5, 3.0], np.float32),
    )
    spec = Spec.of(data.observations, 2)
    core = method.export(config, method.init(config, preparation.seen(spec), jax.random.key(7)))
    return hilp.FoundationPolicy(config, spec, core, preparation, Bank.draw(data, 300, 0))


# ---- numpy -----------------------------------------------------------------------------------------------------------

SEEN, GOALS = DATA.observations[5:25], DATA.observations[200:220]
PROMPTS_TEXT = """{
    "one goal": lambda policy: policy.goal(GOALS[0]),
    "goals": lambda policy: policy.goal(GOALS),
    "plan 2": lambda policy: policy.goal(GOALS[0], plan=2, best=20),
    "plan auto": lambda policy: policy.goal(GOALS[0], plan="auto", best=20, radius=0.05),
    "midpoints": lambda policy: policy.goal(GOALS[0], plan="midpoints", best=20),
    "goal on the graph": lambda policy: policy.goal(GOALS[0], plan="graph"),
    "goals by auto": lambda policy: policy.goal(GOALS, plan="auto"),
    "steadily": lambda policy: policy.goal(GOALS[0], plan="auto", smooth=5),
    "skill": lambda policy: policy.skill(seed=3),
    "reward": lambda policy: policy.reward(
        function=lambda s, a, s2: s2[:, 0] - s[:, 0] + 0.1 * a[:, 1], rule="skill", samples=200, seed=1
    ),
    "centred reward": lambda policy: policy.reward(function=lambda s, a, s2: s2[:, 1], rule="skill", intercept=True),
    "reward as goal": lambda policy: policy.reward(function=lambda s, a, s2: s2[:, 0], rule="goal"),
    "prior": lambda policy: policy.prior(seed=4),
    "nothing": lambda policy: None,
}"""
PROMPTS: dict[str, Callable[[Any], Any]] = eval(PROMPTS_TEXT, {"GOALS": GOALS})  # the same words for both runtimes
CHILD = """
import importlib.util, sys, warnings
import numpy as np
warnings.simplefilter("ignore")
for name in ("jax", "hilp", "scipy"):
    assert importlib.util.find_spec(name) is None, f"{name} can be imported here"
SEEN, GOALS = np.load(sys.argv[2] + "/seen.npy"), np.load(sys.argv[2] + "/goals.npy")
PROMPTS = eval(sys.argv.pop(1), {"GOALS": GOALS})
found = {}
for folder in sys.argv[2:]:
    for name in [name for name in sys.modules if name.startswith("hilp_runtime")]:
        del sys.modules[name]
    sys.path.insert(0, folder)
    import hilp_runtime as runtime
    sys.path.pop(0)
    policy = runtime.load(folder)
    name = folder.rpartition("/")[2]
    for prompt, make in PROMPTS.items():
        try:
            found[name + ": " + prompt] = policy.act(SEEN, make(policy))
            if not prompt.startswith("goals"):
                found[name + ": " + prompt + ", one"] = policy.act(SEEN[3], make(policy))
        except runtime.HilpError:
            found[name + ": " + prompt] = np.zeros(0)
np.savez(sys.argv[1] + "/found.npz", **found)
"""


def only_numpy(folder: Path) -> dict[str, str]:
    """An environment whose Python finds its own modules and numpy, nothing else."""
    site = folder / "only-numpy"
    site.mkdir(exist_ok=True)
    installed = Path(np.__file__).parent
    for part in (installed, installed.parent / "numpy.libs"):
        if part.exists() and not (site / part.name).exists():
            (site / part.name).symlink_to(part)
    return {"PYTHONPATH": str(site), "PATH": os.environ["PATH"], "OPENBLAS_NUM_THREADS": "1"}


def in_a_child(folder: Path, names: list[str], python: list[str], environment: dict[str, str]) -> dict[str, np.ndarray]:
    np.save(folder / "seen.npy", SEEN)
    np.save(folder / "goals.npy", GOALS)
    words = [*python, "-c", CHILD, PROMPTS_TEXT, str(folder), *(str(folder / name) for name in names)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(np.load(folder / "found.npz"))


def compare_with_ours(policies: dict[str, hilp.FoundationPolicy], found: dict[str, np.ndarray]) -> None:
    counted = 0
    for name, policy in policies.items():
        for prompt, make in PROMPTS.items():
            if name not in FIRST and prompt not in ("one goal", "reward", "skill"):
                continue  # the same rules as those of another method of the same file
            theirs, said = found[f"{name}: {prompt}"], f"{name}: {prompt}"
            try:
                ours = policy.act(SEEN, make(policy))
            except hilp.HilpError:
                assert theirs.size == 0, f"{said}: it cannot be prompted so here, and there it can"
                continue
            assert theirs.size, f"{said}: it can be prompted so here, and there it cannot"
            np.testing.assert_allclose(theirs, ours, atol=3e-5, err_msg=said)
            if name in FIRST and not prompt.startswith("goals"):
                one = policy.act(SEEN[3], make(policy))
                np.testing.assert_allclose(found[f"{said}, one"], one, atol=3e-5, err_msg=said)
            counted += 1
    assert counted > 3 * len(FIRST), "most prompts were refused by both"


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, hilp.FoundationPolicy]]:
    """All methods, exported for numpy."""
    folder = tmp_path_factory.mktemp("numpy")
    policies = {name: untrained(name) for name in NAMES}
    for name, policy in policies.items():
        facts = export.write(policy, "numpy", folder / name)
        assert facts["largest_difference"] <= policy_programs.TOLERANCE
    return folder, policies


@pytest.mark.filterwarnings("ignore:phi expresses only", "ignore:the mean of this reward", "ignore:a direction of phi")
def test_every_method_acts_as_in_hilp_where_there_is_numpy_alone(everything: Any, tmp_path: Path) -> None:
    folder, policies = everything
    found = in_a_child(folder, list(policies), [sys.executable, "-S"], only_numpy(tmp_path))
    compare_with_ours(policies, found)


def fresh(folder: Path, *packages: str) -> tuple[str, dict[str, str]]:
    """The Python of a new environment with these packages, as others have them from the index, and what it sees."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = str(folder / "bin" / "python")
    pinned = [f"{name}=={version(name)}" for name in packages]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *pinned], check=True)
    return python, {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_every_method_in_a_fresh_environment_of_numpy(everything: Any, tmp_path: Path) -> None:
    folder, policies = everything
    python, environment = fresh(tmp_path / "venv", "numpy")
    compare_with_ours(policies, in_a_child(folder, list(policies), [python], environment))


GRAPHS = """
import importlib.util, os, sys
import numpy as np
import onnxruntime
for name in ("jax", "hilp", "onnx"):
    assert importlib.util.find_spec(name) is None, f"{name} can be imported here"
given, found = dict(np.load(sys.argv[1] + "/given.npz")), {}
def run(graph, **inputs):
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    return session.run(None, {one.name: inputs[one.name] for one in session.get_inputs()})[0]
for folder in sys.argv[2:]:
    name = folder.rpartition("/")[2]
    found[name + ": act"] = run(folder + "/act.onnx", observation=given["seen"], skill=given[name])
    if os.path.exists(folder + "/goal.onnx"):
        target = run(folder + "/target.onnx", observation=given["goals"])
        found[name + ": goal"] = run(folder + "/goal.onnx", observation=given["seen"], target=target)
np.savez(sys.argv[1] + "/found.npz", **found)
"""


@pytest.mark.slow
def test_every_method_in_a_fresh_environment_of_onnxruntime(everything: Any, tmp_path: Path) -> None:
    policies, rng = everything[1], np.random.default_rng(0)
    skills = {name: rng.normal(size=(20, policy.skill_dim)).astype(np.float32) for name, policy in policies.items()}
    for name, policy in policies.items():
        export.write(policy, "onnx", tmp_path / name)
    np.savez(tmp_path / "given.npz", seen=SEEN, goals=GOALS, **skills)
    python, environment = fresh(tmp_path / "venv", "numpy", "onnxruntime")
    words = [python, "-c", GRAPHS, str(tmp_path), *(str(tmp_path / name) for name in policies)]
    subprocess.run(words, env=environment, check=True)
    found = np.load(tmp_path / "found.npz")
    for name, policy in policies.items():
        np.testing.assert_allclose(found[f"{name}: act"], policy.act(SEEN, skills[name]), atol=1e-5, err_msg=name)
    with_goals = [name for name in policies if f"{name}: goal" in found]
    assert len(with_goals) > len(FIRST) / 2
    for name in with_goals:
        policy = policies[name]
        np.testing.assert_allclose(
            found[f"{name}: goal"], policy.act(SEEN, policy.goal(GOALS)), atol=3e-5, err_msg=name
        )


def test_the_runtime_imports_numpy_and_itself_alone(tmp_path: Path) -> None:
    """SciPy is imported where it is used, and only if it is there."""
    numpy_folder.copy_runtime(tmp_path)
    for path in (tmp_path / "hilp_runtime").rglob("*.py"):
        tree = ast.parse(path.read_text())
        lazy = {id(one) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) for one in ast.walk(node)}
        typing = {id(one) for node in tree.body if isinstance(node, ast.If) for one in ast.walk(node)}
        for node in ast.walk(tree):
            if id(node) in lazy | typing or not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [str(node.module)]
            tops = {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names)
            assert tops <= {"numpy", "hilp_runtime"}, path


class Undirected(directed.Policy):
    """An export whose directions and distances are refused, and nothing else."""

    def distance(self, here: Any, there: Any) -> Any:
        return jnp.sort(there - here, axis=-1)[..., 0]

    def goal_direction(self, here: Any, there: Any) -> Any:
        return jnp.sort(there - here, axis=-1)


@pytest.fixture(scope="module")
def undirected() -> hilp.FoundationPolicy:
    policy = untrained("hilp-directed")
    fields = {one.name: getattr(policy.core, one.name) for one in dataclasses.fields(policy.core)}
    policy.core = Undirected(**fields)
    return policy


def test_prompts_that_cannot_be_exported_say_why(undirected: hilp.FoundationPolicy, tmp_path: Path) -> None:
    facts = export.write(undirected, "numpy", tmp_path / "out")
    assert len(facts["refused"]) == 4
    policy = numpy_folder.load(tmp_path / "out").load(tmp_path / "out")
    with pytest.raises(Exception, match=r"rule '(act_towards|goal_direction)' cannot be exported: it computes 'sort'"):
        policy.goal(GOALS[0])
    assert policy.act(SEEN, policy.skill(seed=0)).shape == (20, 2)
    facts = export.write(undirected, "onnx", tmp_path / "graphs")
    assert facts["graphs"] == ["act", "encode"] and len(facts["refused"]) == 1


def test_plans_without_their_distances_say_why(tmp_path: Path) -> None:
    policy = untrained("hilp-directed")
    fields = {one.name: getattr(policy.core, one.name) for one in dataclasses.fields(policy.core)}
    policy.core = type("Unmeasured", (directed.Policy,), {"distance": Undirected.distance})(**fields)
    export.write(policy, "numpy", tmp_path / "out")
    runtime = numpy_folder.load(tmp_path / "out").load(tmp_path / "out")
    ours = policy.act(SEEN, policy.goal(GOALS[0], plan=0))
    np.testing.assert_allclose(runtime.act(SEEN, runtime.goal(GOALS[0], plan=0)), ours, atol=3e-5)
    with pytest.raises(Exception, match=r"rule 'distance' cannot be exported: it computes 'sort'.*: use plan=0"):
        runtime.goal(GOALS[0], plan=2)


def test_a_reward_on_a_graph_that_stays_behind_is_not_exported(
    undirected: hilp.FoundationPolicy, tmp_path: Path
) -> None:
    policy = undirected
    policy.reward(function=lambda s, a, s2: s2[:, 0], rule="graph").save(tmp_path / "reward")
    with pytest.raises(hilp.HilpError, match="cannot be exported"):
        export.write(policy, "numpy", tmp_path / "out", [tmp_path / "reward"])
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def theirs(everything: Any) -> Callable[[str], Any]:
    """The policy of a method, in the exported runtime."""
    folder, _ = everything

    def load(name: str) -> Any:
        return numpy_folder.load(folder / name).load(folder / name)

    return load


MISTAKES: dict[str, Callable[[Any], Any]] = {
    "takes observations of 3 numbers": lambda p: p.act([1.0, 2.0], p.skill()),
    "must be numbers": lambda p: p.act(["a", "b", "c"], p.skill()),
    "NaN": lambda p: p.act([1.0, 2.0, np.nan], p.skill()),
    "acts on a prompt": lambda p: p.act(SEEN),
    "has 4 numbers": lambda p: p.act(SEEN, [1.0, 2.0]),
    "plan is a number": lambda p: p.goal(GOALS[0], plan=-1),
    "best must be at least 1": lambda p: p.goal(GOALS[0], plan=1, best=0),
    "not zero": lambda p: p.skill(np.zeros(4)),
    "20 goals, one an observation, not 3": lambda p: p.act(SEEN[:3], p.goal(GOALS)),
    "one number per transition": lambda p: p.reward(function=lambda s, a, s2: s2),
    "asks for nothing": lambda p: p.reward(function=lambda s, a, s2: np.ones(len(s))),
    "a function of": lambda p: p.reward(),
    "the rule of a reward is one of": lambda p: p.reward(function=lambda s, a, s2: s2[:, 0], rule="luck"),
}


@pytest.mark.parametrize("said", MISTAKES)
def test_mistakes_in_the_runtime_are_one_line(said: str, theirs: Any) -> None:
    policy = theirs("hilp")
    with pytest.raises(Exception, match=said) as raised:
        MISTAKES[said](policy)
    assert type(raised.value).__name__ == "HilpError"
    assert "\n" not in str(raised.value)


def test_a_prompt_of_another_policy_is_refused(everything: Any) -> None:
    runtime = numpy_folder.load(everything[0] / "hilp")
    one, other = (runtime.load(everything[0] / name) for name in ("hilp", "sf-hilp"))
    with pytest.raises(runtime.HilpError, match="was made for policy"):
        one.act(SEEN, other.goal(GOALS[0]))


def test_a_damaged_export_is_told(everything: Any, tmp_path: Path) -> None:
    content = bytearray((everything[0] / "hilp" / "policy.safetensors").read_bytes())
    content[-1] ^= 1
    (tmp_path / "policy.safetensors").write_bytes(content)
    with pytest.raises(Exception, match="was changed after it was written"):
        numpy_folder.load(everything[0] / "hilp").load(tmp_path)


# ---- ONNX ------------------------------------------------------------------------------------------------------------


def run_graph(folder: Path, name: str, **inputs: np.ndarray) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(folder / f"{name}.onnx"), providers=["CPUExecutionProvider"])
    wanted = {one.name for one in session.get_inputs()}
    return session.run(None, {key: array for key, array in inputs.items() if key in wanted})[0]


@pytest.mark.parametrize("name", NAMES)
def test_graphs_of_every_method_act_as_hilp_does(name: str, everything: Any, tmp_path: Path) -> None:
    policy = everything[1][name]
    facts = export.write(policy, "onnx", tmp_path / "out")
    assert facts["largest_difference"] <= 1e-5
    about = json.loads((tmp_path / "out" / "policy.json").read_text())
    assert about["fingerprint"] == policy.fingerprint and set(about["graphs"]) == set(facts["graphs"])
    z = np.random.default_rng(0).normal(size=(20, policy.skill_dim)).astype(np.float32)
    for rows in (1, 20):  # the batch is symbolic
        found = run_graph(tmp_path / "out", "act", observation=SEEN[:rows], skill=z[:rows])
        np.testing.assert_allclose(found, policy.act(SEEN[:rows], z[:rows]), atol=1e-5)
    assert facts["refused"] == []
    if policy.has_rule("goal_direction") or policy.has_rule("goal_skill"):
        target = run_graph(tmp_path / "out", "target", observation=GOALS)
        found = run_graph(tmp_path / "out", "goal", observation=SEEN, target=target)
        np.testing.assert_allclose(found, policy.act(SEEN, policy.goal(GOALS)), atol=3e-5)
    else:
        assert "goal" not in facts["graphs"]


def test_a_graph_says_what_it_is(everything: Any, tmp_path: Path) -> None:
    import onnx

    policy = everything[1]["hilp"]
    export.write(policy, "onnx", tmp_path / "out")
    model = onnx.load(tmp_path / "out" / "goal.onnx")
    assert {prop.key: prop.value for prop in model.metadata_props}["fingerprint"] == policy.fingerprint
    assert [one.version for one in model.opset_import] == [17]
    dims = [one.type.tensor_type.shape.dim[0].dim_param for one in model.graph.input]
    assert dims == ["rows", "rows"]
    columns, note = storage.read_arrays(tmp_path / "out" / "bank.safetensors")
    np.testing.assert_array_equal(columns["latents"], policy.midpoints.latents)
    assert note["fingerprint"] == policy.fingerprint


# ---- at the goal -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["hilp", "hilp-directed", "sf-hilp"])
def test_at_the_goal_itself_the_skill_is_zero_in_every_runtime(
    name: str, everything: Any, theirs: Any, tmp_path: Path
) -> None:
    policy, runtime = everything[1][name], theirs(name)
    nothing = np.zeros((20, policy.skill_dim))
    still = policy.act(SEEN, nothing)
    np.testing.assert_allclose(policy.act(SEEN, policy.goal(SEEN)), still, atol=1e-6)
    np.testing.assert_allclose(policy.act(SEEN[2], policy.goal(SEEN[2])), still[2], atol=1e-6)
    np.testing.assert_array_equal(policy.goal(SEEN)(SEEN), nothing)
    np.testing.assert_allclose(runtime.act(SEEN, runtime.goal(SEEN)), still, atol=1e-5)
    export.write(policy, "onnx", tmp_path / "out")
    target = run_graph(tmp_path / "out", "target", observation=SEEN)
    found = run_graph(tmp_path / "out", "goal", observation=SEEN, target=target)
    np.testing.assert_allclose(found, still, atol=1e-5)


# ---- observations of other kinds -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["hilp", "fb", "gc-bc"])
def test_images_and_vectors_by_name(name: str, tmp_path: Path) -> None:
    camera = np.random.default_rng(1).integers(0, 256, size=(DATA.rows, 4, 4, 3), dtype=np.uint8)
    named = {"camera": camera, "speed": DATA.observations[:, 0], "state": DATA.observations}
    policy = untrained(name, replace(DATA, observations=named), encoder="none")
    one, batch = ({key: part[rows] for key, part in named.items()} for rows in (3, slice(9)))
    export.write(policy, "numpy", tmp_path / "numpy")
    runtime = numpy_folder.load(tmp_path / "numpy").load(tmp_path / "numpy")
    np.testing.assert_allclose(runtime.act(batch, runtime.goal(one)), policy.act(batch, policy.goal(one)), atol=3e-5)
    np.testing.assert_allclose(runtime.act(one, runtime.goal(one)), policy.act(one, policy.goal(one)), atol=3e-5)
    with pytest.raises(Exception, match="part 'camera'"):
        runtime.act({**one, "camera": one["camera"][0]}, runtime.goal(one))
    export.write(policy, "onnx", tmp_path / "onnx")
    inputs = {f"observation/{key}": part for key, part in batch.items()}
    target = run_graph(tmp_path / "onnx", "target", **inputs)
    found = run_graph(tmp_path / "onnx", "goal", **inputs, target=np.repeat(target[3:4], 9, axis=0))
    np.testing.assert_allclose(found, policy.act(batch, policy.goal(one)), atol=3e-5)


@pytest.mark.parametrize(("name", "encoder"), [("hilp", "light"), ("gc-bc", "paper"), ("fb", "paper")])
def test_encoders_of_pictures(name: str, encoder: str, tmp_path: Path) -> None:
    """Patches, IMPALA's stacks with their pools, and four convolutions, on pictures that are not square."""
    camera = np.random.default_rng(1).integers(0, 256, size=(DATA.rows, 16, 24, 3), dtype=np.uint8)
    policy = untrained(
        name, replace(DATA, observations={"camera": camera, "state": DATA.observations}), encoder=encoder
    )
    seen = {"camera": camera[:9], "state": DATA.observations[:9]}
    z = np.random.default_rng(2).normal(size=(9, policy.skill_dim)).astype(np.float32)
    export.write(policy, "numpy", tmp_path / "numpy")
    runtime = numpy_folder.load(tmp_path / "numpy").load(tmp_path / "numpy")
    np.testing.assert_allclose(runtime.act(seen, z), policy.act(seen, z), atol=1e-5)
    darker = {**seen, "camera": seen["camera"] // 2}
    assert np.abs(runtime.act(darker, z) - runtime.act(seen, z)).max() > 1e-4, "the pictures make a difference"
    export.write(policy, "onnx", tmp_path / "onnx")
    inputs = {f"observation/{key}": part for key, part in seen.items()}
    np.testing.assert_allclose(run_graph(tmp_path / "onnx", "act", **inputs, skill=z), policy.act(seen, z), atol=1e-5)


@pytest.mark.parametrize(
    "transform",
    [
        ObservationTransform(3, (0, 2), ((2, 360.0),)),
        ObservationTransform(3, (1,)),
        ObservationTransform(3, (0, 1), ((0, 2.0), (1, 7.0))),
    ],
)
def test_columns_that_are_angles_or_not_seen(transform: ObservationTransform, tmp_path: Path) -> None:
    policy = untrained("hilp", replace(DATA, transform=transform))
    assert policy.preparation.transform == transform
    for to in export.TARGETS:
        export.write(policy, to, tmp_path / to)
    runtime = numpy_folder.load(tmp_path / "numpy").load(tmp_path / "numpy")
    np.testing.assert_allclose(runtime.encode(SEEN), policy.encode(SEEN), atol=1e-6)
    np.testing.assert_allclose(run_graph(tmp_path / "onnx", "encode", observation=SEEN), policy.encode(SEEN), atol=1e-5)


# ---- prompts that go along -------------------------------------------------------------------------------------------


def test_saved_prompts_go_along(everything: Any, tmp_path: Path) -> None:
    policy = everything[1]["hilp"]
    made = {"skill": policy.skill(seed=1), "goal": policy.goal(GOALS[0], plan=2),
            "way": policy.goal(GOALS[0], plan="graph"),
            "reward": policy.reward(function=lambda s, a, s2: s2[:, 0], rule="graph"),
            "then": policy.skill(seed=1).then(policy.skill(seed=2), 1)}  # fmt: skip
    for name, prompt in made.items():
        prompt.save(tmp_path / f"{name}.safetensors")
    files = [tmp_path / f"{name}.safetensors" for name in made]
    export.write(policy, "numpy", tmp_path / "out", files)
    runtime = numpy_folder.load(tmp_path / "out").load(tmp_path / "out")
    for name, prompt in made.items():
        loaded = runtime.load_prompt(tmp_path / "out" / "prompts" / f"{name}.safetensors")
        for _ in range(2):
            np.testing.assert_allclose(runtime.act(SEEN, loaded), policy.act(SEEN, prompt), atol=3e-5)
    with pytest.raises(hilp.HilpError, match="numpy only"):
        export.write(policy, "onnx", tmp_path / "onnx", files)
    storage.write_arrays(tmp_path / "other.safetensors", {}, {"kind": "dance", "fingerprint": policy.fingerprint})
    with pytest.raises(hilp.HilpError, match="is not a prompt"):
        export.write(policy, "numpy", tmp_path / "other", [tmp_path / "other.safetensors"])
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("name", ["hilp", "opal"])
def test_a_high_level_goes_along(name: str, everything: Any, tmp_path: Path) -> None:
    policy = everything[1][name]
    config, spec = config_of("iql"), Spec(3, policy.skill_dim)
    method = methods.of(config)
    preparation = replace(
        Preparation.of(DATA, True),
        action_center=np.full(policy.skill_dim, 0.1, np.float32),
        action_half_range=np.full(policy.skill_dim, 2.0, np.float32),
        stride=2,
    )
    core = method.export(config, method.init(config, spec, jax.random.key(3)))
    prompt = HierarchyPrompt(policy, HighLevel(config, spec, core, preparation, {}))
    prompt.save(tmp_path / "high.safetensors")
    export.write(policy, "numpy", tmp_path / "out", [tmp_path / "high.safetensors"])
    runtime = numpy_folder.load(tmp_path / "out").load(tmp_path / "out")
    theirs = runtime.load_prompt(tmp_path / "out" / "prompts" / "high.safetensors")
    for step in range(2 * config.k * 2 + 1):  # over the end of a skill, twice
        seen = DATA.observations[10 * step : 10 * step + 5]
        np.testing.assert_allclose(runtime.act(seen, theirs), policy.act(seen, prompt), atol=3e-5, err_msg=str(step))
    for one in (prompt, theirs):
        one.reset([0, 3])
    np.testing.assert_allclose(runtime.act(GOALS[:5], theirs), policy.act(GOALS[:5], prompt), atol=3e-5)
    new = policy.act(SEEN, HierarchyPrompt(policy, prompt.high))  # another number of agents begins new episodes
    np.testing.assert_allclose(policy.act(SEEN, prompt), new, atol=3e-5)
    np.testing.assert_allclose(runtime.act(SEEN, theirs), new, atol=3e-5)


# ---- ways on the graph of the data -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("plan", "smooth"), [("auto", 1), ("graph", 1), ("graph", 3)])
def test_whole_episodes_on_the_graph(plan: str, smooth: float, tiny: hilp.FoundationPolicy, tiny_export: Path) -> None:
    """Both see the same; what was tried by agents that got stuck is remembered on both sides."""
    runtime = numpy_folder.load(tiny_export).load(tiny_export)
    running = hilp.make_task("maze-medium").episodes(np.random.default_rng(3), 6)
    ours, theirs = (policy.goal(running.goals, plan=plan, smooth=smooth) for policy in (tiny, runtime))
    apart = []
    for _ in range(60):
        actions = tiny.act(running.observations, ours)
        apart.append(np.abs(actions - runtime.act(running.observations, theirs)).max(axis=1))
        running.step(actions)
    assert (ours.stuck["level"] > 0).any(), "somebody got stuck, and other things were tried"
    # Which states are nearest is a yes or a no, which rounding errors of a latent can turn once in a long while.
    assert np.mean(np.asarray(apart) <= 1e-4) >= 0.99
    there = runtime.goal(running.goals[0], plan="graph").path_info(running.observations[0])
    here = tiny.goal(running.goals[0], plan="graph").path_info(running.observations[0])
    assert (there.reachable, there.support) == (here.reachable, here.support) and there.path.tolist() == list(here.path)
    assert there.steps == pytest.approx(here.steps, rel=1e-4)


@pytest.fixture(scope="module")
def tiny_export(tiny: hilp.FoundationPolicy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "robot"
    export.write(tiny, "numpy", folder)
    return folder


def test_an_agent_without_a_way_heads_for_midpoints(everything: Any, theirs: Any, change: Any) -> None:
    """Plan auto, where the graph of the data has guessed edges alone."""
    policy = everything[1]["hilp"]
    drawn = policy.planner.graph
    guessed = change(policy, graph=replace(drawn, counts=np.zeros_like(drawn.counts), radius=1e-6))
    runtime = theirs("hilp")
    runtime.arrays |= {f"graph.{name}": column for name, column in guessed.graph.columns().items()}
    runtime.note["trained_graph"] = True
    ours, found = guessed.goal(GOALS[0], plan="auto"), runtime.goal(GOALS[0], plan="auto")
    assert ours.stuck is not None and found.stuck is not None
    np.testing.assert_allclose(runtime.act(SEEN, found), guessed.act(SEEN, ours), atol=3e-5)
    np.testing.assert_allclose(
        runtime.act(SEEN, found), policy.act(SEEN, policy.goal(GOALS[0], plan="midpoints")), atol=3e-5
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 30), st.integers(0, 120))
def test_shortest_ways_are_those_of_scipy(seed: int, count: int, edges: int) -> None:
    rng = np.random.default_rng(seed)
    origin, target = np.sort(rng.integers(count, size=edges)), rng.integers(count, size=edges)
    steps = rng.choice([0.5, 1.0, 1e6 + 1, 3.25], size=edges).astype(np.float32)
    ends = (origin.astype(np.int32), target.astype(np.int32))
    drawn = Graph(np.arange(count, dtype=np.int32), 1.0, *ends, steps, np.ones(edges, np.int32))
    once = np.unique(origin * count + target, return_index=True)[1]  # two edges of one pair are one in a graph
    drawn = replace(drawn, **{name: getattr(drawn, name)[once] for name in ("origin", "target", "steps", "counts")})
    last = np.where(rng.random((3, count)) < 0.2, rng.uniform(0.1, 2, (3, count)), np.inf)
    found = by_sweeps(drawn, drawn.steps, last)
    np.testing.assert_allclose(found, by_scipy(drawn, drawn.steps, last), rtol=1e-12)


# ---- what cannot be exported, and folders ----------------------------------------------------------------------------


class Sorting(eqx.Module):
    """An export that computes what programs have no step for."""

    weight: jax.Array
    skill_dim: int = eqx.field(static=True)

    def act(self, observation: Any, z: Any) -> Any:
        return jnp.sort(observation @ self.weight, axis=-1)


class Ranking(Sorting):
    """An export whose rewards alone are refused."""

    def act(self, observation: Any, z: Any) -> Any:
        return observation @ self.weight

    def goal_skill(self, observation: Any) -> Any:
        return observation

    def cumulant(self, observation: Any, next_observation: Any) -> Any:
        return jnp.sort(next_observation, axis=-1)

    def project(self, z: Any) -> Any:
        return z


def test_a_reward_whose_rule_was_refused_is_not_taken_for_a_goal(tmp_path: Path) -> None:
    policy = untrained("gc-bc")
    policy.core = Ranking(jnp.ones((3, 2)), 3)
    export.write(policy, "numpy", tmp_path / "out")
    runtime = numpy_folder.load(tmp_path / "out").load(tmp_path / "out")
    with pytest.raises(Exception, match=r"rule 'cumulant' cannot be exported: it computes 'sort'.*; rule='goal'"):
        runtime.reward(function=lambda s, a, s2: s2[:, 0])
    by_goal = runtime.reward(function=lambda s, a, s2: s2[:, 0], rule="goal")
    assert runtime.act(SEEN, by_goal).shape == (20, 2)


class Cubes(Sorting):
    """An export that computes with more axes than rows and numbers, as gradients of directed distances do."""

    def act(self, observation: Any, z: Any) -> Any:
        pairs = observation[:, :, None] - observation[:, None, :]  # rows x 3 x 3
        above = jnp.where(jnp.tril(jnp.ones((3, 3), bool)), pairs > 0.0, pairs >= 0.5)
        largest = jnp.max(jnp.where(above, pairs, -1.0), axis=1) + jnp.sum(pairs, axis=(1, 2))[:, None]
        alone = jnp.logical_not(jnp.any(above, axis=2)) | (z > 0.0)
        spread = jax.grad(lambda x: jnp.sum(jnp.max(jnp.square(x[:, None, :] - z[:, :, None]), axis=1)))(observation)
        return jnp.where(alone, largest, spread) @ self.weight


def test_values_of_more_axes_than_two(tmp_path: Path) -> None:
    policy = untrained("gc-bc")
    policy.core = Cubes(jnp.asarray([[1.0, 0.5], [-1.0, 2.0], [0.3, 0.0]]), 3)
    z = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    ours = policy.act(SEEN, z)
    assert np.ptp(ours, axis=0).min() > 0.1
    for to in export.TARGETS:
        assert export.write(policy, to, tmp_path / to)["refused"] == []
    runtime = numpy_folder.load(tmp_path / "numpy").load(tmp_path / "numpy")
    np.testing.assert_allclose(runtime.act(SEEN, z), ours, atol=1e-5)
    np.testing.assert_allclose(runtime.act(SEEN[4], z[4]), ours[4], atol=1e-5)
    for rows in (1, 20):
        found = run_graph(tmp_path / "onnx", "act", observation=SEEN[:rows], skill=z[:rows])
        np.testing.assert_allclose(found, ours[:rows], atol=1e-5)


class Crowd(Sorting):
    """An export that mixes rows, which may be any number."""

    def act(self, observation: Any, z: Any) -> Any:
        return (observation - jnp.sum(observation, axis=0)) @ self.weight


def test_rows_that_are_mixed_are_refused(tmp_path: Path) -> None:
    policy = untrained("gc-bc")
    policy.core = Crowd(jnp.ones((3, 2)), 3)
    with pytest.raises(hilp.HilpError, match="it takes the sum of something else than the numbers of a row"):
        export.write(policy, "numpy", tmp_path / "out")


def test_a_rule_without_steps_is_refused_by_name(tmp_path: Path) -> None:
    policy = untrained("gc-bc")
    policy.core = Sorting(jnp.ones((3, 2)), 3)
    for to in export.TARGETS:
        with pytest.raises(hilp.HilpError, match="gc-bc's rule 'act' cannot be exported: it computes 'sort'"):
            export.write(policy, to, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_an_export_that_differs_is_not_written(
    everything: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = everything[1]["hilp"]
    export.write(policy, "numpy", tmp_path / "out")
    before = (tmp_path / "out" / "policy.safetensors").read_bytes()
    monkeypatch.setitem(programs.PLAIN, "tanh", "exp")
    for to in export.TARGETS:
        with pytest.raises(hilp.HilpError, match="was exported wrongly: it differs by"):
            export.write(policy, to, tmp_path / "out", overwrite=True)
    assert (tmp_path / "out" / "policy.safetensors").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_the_command(run: Any, refused: Any, tiny_run: Path, tiny: hilp.FoundationPolicy, tmp_path: Path) -> None:
    code, out, err = run("export", tiny_run, "--to", "numpy", "--out", tmp_path / "robot", "--json")
    assert code == 0, err
    facts = json.loads(out)
    assert facts["fingerprint"] == tiny.fingerprint and facts["largest_difference"] <= 1e-5
    runtime = numpy_folder.load(tmp_path / "robot").load(tmp_path / "robot")
    here, there = tiny.bank.observations[:2]
    for plan in (0, 3, "midpoints", "auto", "graph"):
        ours = tiny.act(here, tiny.goal(there, plan=plan))
        np.testing.assert_allclose(runtime.act(here, runtime.goal(there, plan=plan)), ours, atol=1e-4)
    assert "holds an export already" in refused("export", tiny_run, "--to", "numpy", "--out", tmp_path / "robot")
    assert run("export", tiny_run, "--to", "numpy", "--out", tmp_path / "robot", "--overwrite")[0] == 0
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years")
    assert "'thesis.tex', which is no part of an export" in refused(
        "export", tiny_run, "--to", "onnx", "--out", tmp_path / "mine", "--overwrite"
    )
    assert "it is a file" in refused("export", tiny_run, "--to", "onnx", "--out", tmp_path / "mine" / "thesis.tex")
    assert "no such folder" in refused("export", tmp_path / "none", "--to", "onnx", "--out", tmp_path / "x")
    assert "does not exist" in refused("export", tiny_run, "--to", "numpy", "--out", tmp_path / "x", "--prompts", "y")


def test_without_the_extra_the_command_says_what_to_install(
    refused: Any, tiny_run: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert "pip install 'hilp[onnx]'" in refused("export", tiny_run, "--to", "onnx", "--out", tmp_path / "x")


# ---- one observation at a time ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", [0, 3, "auto", "graph", "midpoints"])
def test_one_observation_acts_as_in_a_batch(plan: Any, tiny: hilp.FoundationPolicy) -> None:
    seen, goal = tiny.bank.observations[:7], tiny.bank.observations[100]
    whole = tiny.act(seen, tiny.goal(goal, plan=plan))
    for row, action in zip(seen, whole, strict=True):
        np.testing.assert_allclose(tiny.act(row, tiny.goal(goal, plan=plan)), action, atol=2e-4)


def test_a_batch_acts_on_the_very_skills_of_its_prompt(tiny: hilp.FoundationPolicy) -> None:
    seen = tiny.bank.observations[:7]
    go = tiny.goal(tiny.bank.observations[100], plan=3)
    np.testing.assert_array_equal(tiny.act(seen, go), tiny.act(seen, go(seen)))


def test_one_observation_and_several_goals(tiny: hilp.FoundationPolicy) -> None:
    with pytest.raises(hilp.HilpError, match="holds 2 goals, one an observation, not 1"):
        tiny.act(tiny.bank.observations[0], tiny.goal(tiny.bank.observations[:2]))
