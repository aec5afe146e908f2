"""Collecting DeepMind Control data: what is stored, going on after an interruption, and ExORL's layout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import hilp
from hilp import collectors
from hilp.cli import main
from hilp.collectors import collecting
from hilp.collectors import dmc as collector
from hilp.collectors.collecting import Request, Shards, collection
from hilp.data.convert import write_exorl as export_exorl
from hilp.data.dataset import Dataset
from hilp.errors import HilpError

pytest.importorskip("dm_control", reason="pip install 'hilp[mujoco]'")

from hilp.tasks import dmc

SMALL = {"learners": 1, "side_by_side": 2, "random_steps": 100, "steps_per_update": 20, "width": 32}
SMALL |= {"novelty": (32, 8), "batch": 32, "lr": 1e-3}
CONFIG = replace(collector.Config(), **SMALL)


class Short(dmc.Dmc):
    """The cheetah, which simulates fastest, in short episodes."""

    def __init__(self) -> None:
        super().__init__("cheetah", ("run",), threads=1)
        self.max_steps = 100


class Interrupted(Exception):
    pass


def interrupt_at(transitions: int):
    def progress(done: int) -> None:
        if done >= transitions:
            raise Interrupted

    return progress


def collect(out, kind="rnd", steps=550, seed=0, progress=None, config=SMALL, workers=1) -> Dataset:
    return collectors.run(collector, Short(), Request(kind, steps, seed, out, progress, workers, config=config))


def same(one: Dataset, other: Dataset) -> bool:
    columns = [(data.observations, data.actions, data.lengths, data.extra("physics")) for data in (one, other)]
    return all(np.array_equal(a, b) for a, b in zip(*columns, strict=True))


# ---- shards ----------------------------------------------------------------------------------------------------------


def episode(number: int, steps: int = 3) -> dict[str, np.ndarray]:
    rows = np.arange(steps + 1, dtype=np.float32)[:, None] + 10 * number
    return {"observations": np.repeat(rows, 2, axis=1), "actions": rows[:-1] / 100, "physics": rows.astype(np.float64)}


def test_shards_become_a_native_folder(tmp_path):
    out = tmp_path / "new" / "data"
    shards = Shards(out, {"task": "t", "seed": 0})
    shards.add([episode(0), episode(1, steps=5)])
    del shards
    shards = Shards(out, {"task": "t", "seed": 0})
    assert (shards.episodes(), shards.transitions()) == (2, 8)
    shards.add([episode(2)])
    assert (shards.episodes(), shards.transitions()) == (3, 11)
    for stored, given in zip(shards.stored(), [episode(0), episode(1, steps=5), episode(2)], strict=True):
        assert stored.keys() == given.keys()
        assert all(np.array_equal(stored[name], given[name]) for name in given)
    data = shards.finish("t-kind", "t", (("position", (2,)),))
    assert (data.name, data.task, data.observation_parts) == ("t-kind", "t", (("position", (2,)),))
    assert data.lengths.tolist() == [4, 6, 4] and data.transitions == 11
    np.testing.assert_array_equal(data.observations[4:10], episode(1, steps=5)["observations"])
    np.testing.assert_array_equal(data.actions[:4, 0], np.float32([0, 0.01, 0.02, 0]))
    np.testing.assert_array_equal(data.extra("physics")[10:], episode(2)["physics"])
    Dataset.open(out, verify=True)
    assert [entry.name for entry in out.parent.iterdir()] == ["data"]


def test_a_collection_into_the_folder_one_is_in(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path / "data")
    with collection(Path("."), {}, overwrite=True) as shards:
        shards.add([episode(0)])
        assert shards.finish("t-kind", "t").transitions == 3
    assert [entry.name for entry in tmp_path.iterdir() if entry.is_dir()] == ["data"]


def test_a_state_drops_the_episodes_it_has_not_seen(tmp_path):
    shards = Shards(tmp_path / "data", {})
    shards.add([episode(0)])
    shards.save_state({"weights": np.ones(3)}, {"updates": 7})
    shards.add([episode(1)])
    arrays, note = shards.load_state()
    assert note == {"updates": 7} and np.array_equal(arrays["weights"], np.ones(3))
    assert shards.episodes() == 1
    assert Shards(tmp_path / "data", {}).episodes() == 1


def test_without_a_state_a_learner_starts_anew(tmp_path):
    shards = Shards(tmp_path / "data", {})
    shards.add([episode(0)])
    assert shards.load_state() is None
    assert shards.episodes() == shards.transitions() == 0


def test_shards_mistakes(tmp_path):
    out = tmp_path / "data"
    shards = Shards(out, {"task": "walker", "seed": 0})
    with pytest.raises(HilpError, match=r"unfinished collection of task walker, seed 0: finish it .* delete"):
        Shards(out, {"task": "walker", "seed": 1})
    with pytest.raises(HilpError, match="holds no episode"):
        shards.finish("name", "task")
    with pytest.raises(ValueError, match="4 observations have 5 rows of physics"):
        shards.add([{**episode(0), "physics": np.zeros((5, 1))}])
    shards.add([episode(0)])
    shards.add([episode(1)])
    shards.save_state({}, {})
    first, second = sorted(shards.folder.glob("0*.safetensors"))
    content = second.read_bytes()
    second.unlink()
    with pytest.raises(HilpError, match="has lost episodes"):
        Shards(out, {"task": "walker", "seed": 0}).load_state()
    second.write_bytes(content[:-8])
    with pytest.raises(HilpError, match="truncated"):
        Shards(out, {"task": "walker", "seed": 0})
    second.write_bytes(content)
    first.unlink()
    with pytest.raises(HilpError, match="lacks episodes before"):
        Shards(out, {"task": "walker", "seed": 0})
    out.mkdir()
    with pytest.raises(HilpError, match="already exists"), collection(out, {"task": "walker", "seed": 0}):
        pass


def test_another_process_is_kept_out_and_told_by_whom(tmp_path):
    code = """
import sys, pathlib
from hilp.collectors.collecting import collection
with collection(pathlib.Path(sys.argv[1]), {}):
    pass
"""
    with collection(tmp_path / "data", {"task": "walker", "seed": 3}):
        run = subprocess.run([sys.executable, "-c", code, tmp_path / "data"], capture_output=True, text=True)
    told = run.stderr.splitlines()[-1]
    assert f"process {os.getpid()}" in told and "(collecting task walker, seed 3)" in told
    subprocess.run(
        [sys.executable, "-c", code.replace("{}", repr({"task": "walker", "seed": 3})), tmp_path / "data"], check=True
    )


def test_what_the_dead_left_of_a_finished_collection_is_removed(tmp_path, monkeypatch):
    """Killed while the shards of a finished collection are removed: the next one is not mistaken for a torn one."""

    def killed(*_, **__):
        raise Interrupted

    with monkeypatch.context() as patched:
        patched.setattr("hilp.collectors.collecting.shutil", SimpleNamespace(rmtree=killed))
        with collection(tmp_path / "data", {}) as shards:
            shards.add([episode(0)])
            with pytest.raises(Interrupted):
                shards.finish("t", "t")
    (leftover,) = (path for path in tmp_path.iterdir() if path.name != "data")
    assert ".writing-" in leftover.name
    # As if the process that it belonged to were gone.
    leftover.rename(leftover.with_name(leftover.name.replace(f"-{os.getpid()}-", "-4194305-")))
    with collection(tmp_path / "data", {}, overwrite=True) as shards:
        assert shards.episodes() == 0
        shards.add([episode(1)])
        shards.finish("t", "t")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


# ---- collecting ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", collector.KINDS)
def test_data_is_what_the_simulator_did(tmp_path, kind):
    told = []
    data = collect(tmp_path / "data", kind, progress=told.append)
    assert data.transitions == 550 and data.lengths.tolist() == [101] * 5 + [51]
    assert (data.name, data.task) == (f"cheetah-{kind}", "cheetah")
    assert sum(shape[0] for _, shape in data.observation_parts) == data.observation_dim == 17
    assert data.observations.dtype == data.actions.dtype == np.float32
    assert np.abs(data.actions).max() <= 1
    assert told == sorted(told) and told[-1] == 550
    physics = data.extra("physics")
    assert physics.shape == (556, 18) and physics.dtype == np.float64
    np.testing.assert_array_equal(data.observations, physics[:, 1:].astype(np.float32))  # all but x
    world = Short()
    for rows in data.iter_episodes():
        running = world.episodes(np.random.default_rng(0), 1, start=physics[rows.start])
        for row in range(rows.start, min(rows.start + 5, rows.stop - 1)):
            running.step(data.actions[row : row + 1])
            np.testing.assert_allclose(running.extra("physics")[0], physics[row + 1], atol=1e-2)


def test_seeds_and_starts_differ(tmp_path):
    one, again = collect(tmp_path / "one"), collect(tmp_path / "again")
    other = collect(tmp_path / "other", seed=1)
    assert same(one, again)
    assert not np.array_equal(one.observations[0], other.observations[0])
    starts = one.observations[one.starts]
    assert len(np.unique(starts, axis=0)) == len(starts)


def test_one_seed_of_both_learners_differs_only_once_they_learn(tmp_path):
    rnd, apt = collect(tmp_path / "rnd", "rnd"), collect(tmp_path / "apt", "apt")
    np.testing.assert_array_equal(rnd.actions[:40], apt.actions[:40])
    assert not np.array_equal(rnd.actions, apt.actions)


@pytest.mark.parametrize("kind", ["random", "rnd"])
@pytest.mark.parametrize("transitions", [30, 300, 540])
def test_an_interrupted_collection_goes_on_as_if_nothing_had_happened(tmp_path, kind, transitions):
    whole = collect(tmp_path / "whole", kind)
    with pytest.raises(Interrupted):
        collect(tmp_path / "parts", kind, progress=interrupt_at(transitions))
    assert not (tmp_path / "parts").exists() and (tmp_path / "parts.partial").exists() == (transitions >= 200)
    told = []
    parts = collect(tmp_path / "parts", kind, progress=told.append)
    assert told[0] == transitions // 200 * 200 + 2  # what was finished is not collected again
    assert same(whole, parts)
    assert not (tmp_path / "parts.partial").exists()


def test_learners_share_what_they_see_and_do_not_depend_on_threads(tmp_path):
    two = SMALL | {"learners": 2}
    whole = collect(tmp_path / "whole", config=two, workers=2)
    assert same(whole, collect(tmp_path / "again", config=two, workers=1))
    with pytest.raises(Interrupted):
        collect(tmp_path / "parts", config=two, workers=2, progress=interrupt_at(450))
    assert same(whole, collect(tmp_path / "parts", config=two, workers=2))
    alone = collect(tmp_path / "alone")
    assert np.array_equal(whole.actions[:50], alone.actions[:50]), "random at first"
    assert whole.lengths.tolist() == alone.lengths.tolist()
    assert not np.array_equal(whole.actions[404:], alone.actions[404:]), "the second round has learned from four"


def test_what_the_behaviour_was_like_is_kept_and_shown(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(collecting, "MEASURED", 300)  # every second transition
    data = collect(tmp_path / "data", "random")
    rows = data.transition_rows[::2]
    speeds = Short().measure(data.extra("physics")[rows + 1])[:, 0]
    assert data.measured["reward_run"] == pytest.approx(np.clip(speeds / 10, 0, 1).mean())
    shares, edges = data.measured["speed_shares"], data.measured["speed_edges"]
    assert shares[4] == pytest.approx((np.abs(speeds) < 0.5).mean()) and edges[4:6] == [-0.5, 0.5]
    assert sum(shares) == pytest.approx(1) and data.measured["ended_early"] == 0
    assert main(["data", "inspect", str(tmp_path / "data")]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"-0.5 to 0.5: {shares[4]:.1%}" in printed and f"run {data.measured['reward_run']:.3g}" in printed
    assert main(["data", "inspect", str(tmp_path / "data"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["measured"] == dict(data.measured)


def test_early_ends_are_counted_and_the_last_may_be_cut():
    rows = np.zeros((15, 2), np.float32)
    data = Dataset(rows, rows[:, :1], np.array([5, 3, 5, 2]), {}, name="walks")
    assert collecting.measure(SimpleNamespace(rewards={}), data) == {"ended_early": 1}


def test_learners_take_config_values(tmp_path):
    with pytest.raises(HilpError, match="unknown config key 'widht': did you mean 'width'"):
        hilp.collect(Short(), "rnd", 100, out=tmp_path / "data", config={"widht": 8})
    with pytest.raises(HilpError, match="'batch' must be at least 1, not 0"):
        hilp.collect(Short(), "rnd", 100, out=tmp_path / "data", config={"batch": "0"})
    with pytest.raises(HilpError, match="nothing learns"):
        hilp.collect("maze-large", config={"width": 8})
    assert not list(tmp_path.iterdir())


def test_episodes_without_their_learner_are_not_kept(tmp_path, monkeypatch):
    """Killed between writing a block and the learner that has seen it: the block is collected again."""
    whole = collect(tmp_path / "whole")
    saves = []

    def save(seekers, shards):
        saves.append(shards.episodes())
        if len(saves) == 2:
            raise Interrupted
        original(seekers, shards)

    original = collector.save
    monkeypatch.setattr(collector, "save", save)
    with pytest.raises(Interrupted):
        collect(tmp_path / "parts")
    assert len(list((tmp_path / "parts.partial").glob("0*"))) == 2
    monkeypatch.setattr(collector, "save", original)
    assert same(collect(tmp_path / "parts"), whole)


def test_collect_mistakes(tmp_path):
    with pytest.raises(HilpError, match="unknown kind of cheetah data 'rmd': did you mean 'rnd'"):
        hilp.collect(Short(), "rmd", 10, out=tmp_path / "data")
    with pytest.raises(HilpError, match="steps must be at least 1, not 0"):
        hilp.collect(Short(), "rnd", 0, out=tmp_path / "data")
    with pytest.raises(Interrupted):
        collect(tmp_path / "data", "random", progress=interrupt_at(300))
    with pytest.raises(HilpError, match=r"unfinished collection of task cheetah, .* with the same command"):
        collect(tmp_path / "data", "random", config=SMALL | {"lr": 2e-3})
    with pytest.raises(HilpError, match="unfinished collection of task cheetah, kind random, steps 550, seed 0"):
        collect(tmp_path / "data", "rnd")
    collect(tmp_path / "data", "random")
    with pytest.raises(HilpError, match="already exists"):
        collect(tmp_path / "data", "random")


# ---- the learner -----------------------------------------------------------------------------------------------------


def test_replay_samples_transitions_of_one_episode():
    """Observations that say their episode and step: s' is n steps on, or the last of the episode so far."""
    replay = collector.Replay(4, 10, 2, 1)
    episodes, steps = np.meshgrid(np.arange(4), np.arange(11), indexing="ij")
    replay.observations[:] = np.stack([episodes, steps], axis=-1)
    replay.actions[:] = 100 * episodes[:, :-1, None] + steps[:, :-1, None]
    replay.finished = 2
    batch = replay.sample(np.random.default_rng(0), 50, CONFIG, slice(2, 4), 4)
    assert batch.observation.shape == (50, 32, 2)
    episode, step = batch.observation[..., 0], batch.observation[..., 1]
    last = np.where(episode < 2, 10, 4)
    np.testing.assert_array_equal(batch.action[..., 0], 100 * episode + step)
    np.testing.assert_array_equal(batch.next_observation[..., 0], episode)
    np.testing.assert_array_equal(batch.next_observation[..., 1], np.minimum(step + 3, last))
    np.testing.assert_allclose(batch.discount, 0.99 ** (np.minimum(step + 3, last) - step), rtol=1e-6)
    seen = {tuple(pair) for pair in batch.observation.reshape(-1, 2).astype(int)}
    assert seen == {(e, t) for e in range(4) for t in range(10 if e < 2 else 4)}


def test_particle_entropy_is_the_log_of_the_mean_distance_to_the_nearest():
    states = np.random.default_rng(0).normal(size=(40, 5))
    distances = np.sort(np.linalg.norm(states[:, None] - states, axis=-1), axis=1)
    expected = np.log1p(distances[:, 1:4].mean(axis=1))
    np.testing.assert_allclose(collector.particle_entropy(states.astype(np.float32), 3), expected, atol=2e-3)


def learned(kind: str, batches: collector.Batch) -> tuple[collector.State, collector.State]:
    """A learner of the cheetah's sizes before and after, two updates at a time as in a small collection."""
    before = after = collector.init(CONFIG, 17, 6, jax.random.key(0))
    zeros, ones = np.zeros(17, np.float32), np.ones(17, np.float32)
    for first in range(0, len(batches.discount), 2):
        pair = jax.tree.map(lambda column: column[first : first + 2], batches)  # noqa: B023
        after, _ = collector.learn(CONFIG, kind, after, pair, zeros, ones, jax.random.key(first))
    return before, after


def test_rnd_finds_the_unseen_more_novel_than_the_seen():
    seen = np.random.default_rng(0).normal(size=(600, 32, 17)).astype(np.float32)
    seen[..., :4] = -np.abs(seen[..., :4])  # one corner of the space only
    zeros = np.zeros((600, 32, 6), np.float32)
    before, after = learned("rnd", collector.Batch(seen, zeros, seen, zeros[..., 0]))
    new = np.concatenate([np.abs(seen[-1, :, :4]), seen[-1, :, 4:]], axis=1)

    def error(state: collector.State, states: np.ndarray) -> float:
        return float(collector.prediction_error(state.predictor, state.fixed, states).mean())

    # Over five seeds the unseen became 2.3 to 3.7 times as novel, and the seen kept 6 to 11% of its error.
    novelty = [error(state, new) / error(state, seen[-1]) for state in (before, after)]
    assert novelty[1] > 1.5 * novelty[0]
    assert error(after, seen[-1]) < error(before, seen[-1]) / 3


def test_the_actor_learns_to_go_where_the_reward_is():
    """States that an action to the left leads to lie close together, those to the right far apart."""
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (600, 32, 6)).astype(np.float32)
    here = rng.normal(size=(600, 32, 17)).astype(np.float32)
    there = np.where(actions[..., :1] > 0, 1, 0.1) * rng.normal(size=here.shape).astype(np.float32)
    batches = collector.Batch(here, actions, there.astype(np.float32), np.zeros((600, 32), np.float32))
    before, after = learned("apt", batches)
    rightwards = [(np.asarray(collector.act(state.actor, here[0]))[:, 0] > 0.5).mean() for state in (before, after)]
    assert rightwards[0] < 0.5 and rightwards[1] > 0.8  # over five seeds: at most 0.22 before, all of them after


@pytest.mark.slow
def test_rnd_covers_more_than_random_motion(tmp_path):
    """The walker's last 10,000 of 40,000 transitions: heights, speeds and turns beyond those of random actions."""
    world = dmc.make("walker")
    spread = {}
    for kind in ("random", "rnd"):
        data = hilp.collect(world, kind, 40_000, 0, out=tmp_path / kind)
        measures = world.measure(np.asarray(data.extra("physics")[-10_010::5]))
        spread[kind] = np.percentile(measures, 99, axis=0) - np.percentile(measures, 1, axis=0)
    height, _, speed, spin = spread["rnd"] / spread["random"]
    assert height > 1.15 and speed > 1.8 and spin > 1.3


# ---- ExORL -----------------------------------------------------------------------------------------------------------


def test_exorl_round_trip(tmp_path):
    data = collect(tmp_path / "data", "random")
    folder = export_exorl(data, tmp_path / "exorl")
    assert folder == tmp_path / "exorl" / "cheetah" / "random"
    names = sorted(file.name for file in (folder / "buffer").iterdir())
    assert [name.rpartition(".")[0].split("_")[1:] for name in names] == [
        *([str(number), "100"] for number in range(5)),
        ["5", "50"],
    ]
    with np.load(folder / "buffer" / names[1], allow_pickle=False) as first:
        assert set(first) == {"observation", "action", "reward", "discount", "physics"}
        assert not first["action"][0].any()
        assert first["reward"].shape == first["discount"].shape == (101, 1)
        np.testing.assert_array_equal(first["observation"], data.observations[101:202])
        np.testing.assert_array_equal(first["action"][1:], data.actions[101:201])
        np.testing.assert_array_equal(first["physics"], data.extra("physics")[101:202])
    again = hilp.load(folder)
    assert again.format == "exorl"
    assert same(again, data)


def test_exorl_order_is_that_of_the_episodes(tmp_path):
    data = Dataset(
        np.arange(24, dtype=np.float32)[:, None], np.zeros((24, 1), np.float32), np.full(12, 2), name="other"
    )
    again = hilp.load(export_exorl(data, tmp_path, domain="walker", algorithm="proto"))
    np.testing.assert_array_equal(again.observations, data.observations)


def test_exorl_mistakes(tmp_path):
    data = Dataset(np.zeros((4, 1), np.float32), np.zeros((4, 1), np.float32), np.array([4]), name="mine")
    with pytest.raises(HilpError, match="pass domain="):
        export_exorl(data, tmp_path)
    export_exorl(data, tmp_path, "walker", "mine")
    with pytest.raises(HilpError, match="already exists"):
        export_exorl(data, tmp_path, "walker", "mine")


def test_a_folder_named_after_a_task_is_data_of_that_task(tmp_path):
    data = collect(tmp_path / "out", kind="random", steps=200)
    again = hilp.load(export_exorl(data, tmp_path / "exorl"))
    assert again.task == "cheetah" and again.observation_parts == Short().observation_parts
    other = hilp.load(export_exorl(data, tmp_path, domain="walker", algorithm="proto"))
    assert other.task is None and "not taken as that task" in " ".join(other.notes)
