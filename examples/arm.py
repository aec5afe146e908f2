"""An arm's log at any rate: a messy CSV file in, a policy that reaches poses out, with nothing said about time.

Run: python examples/arm.py [updates]            an arm that is logged at 100 Hz
     python examples/arm.py --table ROWS.jsonl   the same arm at 10, 50, 100 and 500 Hz; goes on where it was stopped
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import hilp
from hilp.evaluation import stats
from hilp.versions import versions

SPEED = 90.0  # degrees a second, the most that a joint is told
LAG = 0.05  # seconds until a joint moves as told, but for a third
NOISE = 0.05  # degrees, of the encoders
ELBOW = 150.0  # degrees, where the elbow stops
NEAR = 10.0  # degrees: both joints within this of the goal have reached it
RUNS, SECONDS = 100, 30  # of the log
LIMIT = 15.0  # seconds to reach a goal in
RATES = (10, 50, 100, 500)


class Arm:
    """Arms side by side: a base that turns all the way round, an elbow, joint speeds as commands."""

    def __init__(self, rate: float, joints: np.ndarray, rng: np.random.Generator):
        self.rate, self.joints, self.rng = rate, np.array(joints, float), rng  # degrees, [n, 2]
        self.speeds = np.zeros_like(self.joints)

    def step(self, commands: np.ndarray) -> None:
        """One tick of the controller: 1 / rate seconds."""
        wanted = np.clip(commands, -SPEED, SPEED)
        self.speeds += (1.0 - np.exp(-1.0 / (self.rate * LAG))) * (wanted - self.speeds)
        self.joints += self.speeds / self.rate
        self.joints[:, 0] = wrapped(self.joints[:, 0])
        self.joints[:, 1] = np.clip(self.joints[:, 1], -ELBOW, ELBOW)

    def read(self) -> np.ndarray:
        """What the encoders say: the base jumps from 180 to -180 degrees."""
        seen = self.joints + self.rng.normal(0.0, NOISE, self.joints.shape)
        seen[:, 0] = wrapped(seen[:, 0])
        return seen


def wrapped(degrees: np.ndarray) -> np.ndarray:
    return (degrees + 180.0) % 360.0 - 180.0


def poses(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.uniform([-180.0, -ELBOW], [180.0, ELBOW], (count, 2))


class Operator:
    """Somebody who drives the arms to one pose after the other, with an unsteady hand; knows no goal of ours."""

    def __init__(self, rate: float, count: int, rng: np.random.Generator):
        self.rate, self.rng = rate, rng
        self.targets, self.wobble = poses(rng, count), np.zeros((count, 2))

    def act(self, joints: np.ndarray) -> np.ndarray:
        keep = np.exp(-1.0 / (0.3 * self.rate))  # the hand's error lasts 0.3 s, at any rate
        self.wobble = keep * self.wobble + np.sqrt(1.0 - keep**2) * self.rng.normal(0.0, 20.0, self.wobble.shape)
        ahead = self.targets - joints
        ahead[:, 0] = wrapped(ahead[:, 0])
        there = np.abs(ahead).max(axis=1) < 5.0
        self.targets[there] = poses(self.rng, int(there.sum()))
        return np.clip(2.0 * ahead, -60.0, 60.0) + self.wobble


# ---- the log ---------------------------------------------------------------------------------------------------------


def write_log(path: Path, rate: int, runs: int = RUNS, seed: int = 0) -> None:
    """What an operator did, as such files are: wrapped angles, a gripper that never moves, rows without a reading."""
    rng = np.random.default_rng(seed)
    arms, operator = Arm(rate, poses(rng, runs), rng), Operator(rate, runs, rng)
    ticks = SECONDS * rate
    table = np.empty((runs, ticks, 7))
    table[..., 0], table[..., 1] = np.arange(runs)[:, None], np.arange(ticks) / rate
    for tick in range(ticks):
        seen = arms.read()
        commands = np.clip(operator.act(seen), -SPEED, SPEED)
        table[:, tick, 2:4], table[:, tick, 4], table[:, tick, 5:] = seen, 0.5, commands
        arms.step(commands)
    table = table.reshape(-1, 7)
    table[rng.choice(len(table), 7, replace=False), 2:4] = np.nan
    np.savetxt(path, table, "%d,%.3f,%.3f,%.3f,%.1f,%.2f,%.2f", header="run,time,q1,q2,gripper,u1,u2", comments="")


def read_log(path: Path) -> hilp.Dataset:
    """As `hilp data inspect` advises for this file; nothing is said about time."""
    return hilp.load(
        path,
        columns={"observations": ["q1", "q2", "gripper"], "actions": ["u1", "u2"], "episode_ids": "run"},
        split="nan",  # episodes end where a reading is missing
        angles="auto",  # networks see the sine and cosine of the base, which wraps
        drop="constant",  # and no gripper
        rescale_actions=True,  # degrees a second to [-1, 1]; the policy answers in degrees a second
    )


def readings(joints: np.ndarray) -> np.ndarray:
    """A row of the log: the joints, and the gripper."""
    return np.concatenate([joints, np.full((len(joints), 1), 0.5)], axis=1)


# ---- reaching --------------------------------------------------------------------------------------------------------

Act = Callable[[np.ndarray, np.ndarray], np.ndarray]  # what the encoders say, who is not there yet -> commands


def reach(make: Callable[[np.ndarray], Act], rate: int, episodes: int, seed: int) -> dict[str, object]:
    """Send arms from random poses to random poses, asked for a command at every tick of the controller."""
    rng = np.random.default_rng([seed, 1])
    goals, arms = poses(rng, episodes), Arm(rate, poses(rng, episodes), rng)
    act = make(goals)
    ticks = np.full(episodes, int(LIMIT * rate))
    reached = np.zeros(episodes, bool)
    for tick in range(int(LIMIT * rate) + 1):
        away = arms.joints - goals
        away[:, 0] = wrapped(away[:, 0])
        there = np.abs(away).max(axis=1) <= NEAR
        ticks[there & ~reached] = tick
        reached |= there
        if reached.all():
            break
        arms.step(act(arms.read(), ~reached))
    low, high = stats.wilson(int(reached.sum()), episodes)
    return {
        "reached": float(reached.mean()),
        "interval": [low, high],
        "episodes": episodes,
        "seconds_of_successes": float(ticks[reached].mean() / rate) if reached.any() else None,
        "outcomes": reached.astype(int).tolist(),
    }


def prompted(policy: hilp.FoundationPolicy, plan: int | str, hold: int = 1) -> Callable[[np.ndarray], Act]:
    """The policy on its way to goals; `hold` asks it at every so many ticks only and holds its command in between."""

    def make(goals: np.ndarray) -> Act:
        go, tick, commands = policy.goal(readings(goals), plan=plan), 0, np.zeros_like(goals)

        def act(joints: np.ndarray, active: np.ndarray) -> np.ndarray:
            nonlocal tick, commands
            if tick % hold == 0:
                seen = readings(joints)
                commands = policy.act(seen, go(seen, active=active))
            tick += 1
            return commands

        return act

    return make


def blind(rate: int, seed: int, random: bool) -> Callable[[np.ndarray], Act]:
    """Those who do not know the goal: random commands, each held for 0.3 s, or the operator of the log."""
    rng = np.random.default_rng([seed, 2])

    def make(goals: np.ndarray) -> Act:
        operator, commands, tick = Operator(rate, len(goals), rng), np.zeros_like(goals), 0

        def act(joints: np.ndarray, active: np.ndarray) -> np.ndarray:
            nonlocal commands, tick
            if not random:
                return operator.act(joints)
            if tick % max(1, round(0.3 * rate)) == 0:
                commands = rng.uniform(-SPEED, SPEED, goals.shape)
            tick += 1
            return commands

        return act

    return make


# ---- what is run -----------------------------------------------------------------------------------------------------


def train(rate: int, updates: int | None, seed: int, out: Path) -> hilp.FoundationPolicy:
    """A policy from the log of a rate, with the laptop preset as it is."""
    out.mkdir(parents=True, exist_ok=True)
    log, run = out / f"arm-{rate}hz.csv", out / f"arm-{rate}hz-seed-{seed}"
    if not log.exists():
        write_log(log, rate)
    preset = hilp.preset("hilp", "laptop")
    resume, steps = (run / "run.json").exists(), preset.steps if updates is None else updates
    return hilp.pretrain(
        preset.config, read_log(log), steps=steps, seed=seed, bank=preset.bank, validation=0.1, out=run, resume=resume
    )


def table(path: Path, out: Path, episodes: int, seeds: int) -> None:
    """A row for each rate and seed that the file lacks."""
    known = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    for seed in range(seeds):
        for rate in RATES:
            if any((row["rate"], row["seed"]) == (rate, seed) for row in known):
                continue
            policy = train(rate, None, seed, out)
            stride = policy.preparation.stride
            tried = {"random": blind(rate, seed, random=True), "operator": blind(rate, seed, random=False)}
            tried |= {f"plan {plan}": prompted(policy, plan) for plan in (0, "auto")}
            tried |= {"plan 0, held": prompted(policy, 0, hold=stride)}
            row = {
                "rate": rate,
                "seed": seed,
                "stride": stride,
                "phi_discount": policy.config.phi_discount,
                "results": {name: reach(make, rate, episodes, seed) for name, make in tried.items()},
                "policy": policy.fingerprint,
                "data_fingerprint": policy.provenance.data_fingerprint,
                "preset": "laptop",
                "config": policy.settings,
                "updates": policy.provenance.steps,
                "command": f"python examples/arm.py --table {path.name} --episodes {episodes} --seeds {seeds}",
                "versions": versions(),
            }
            with open(path, "a") as file:
                file.write(json.dumps(row) + "\n")
            shares = ", ".join(f"{name} {result['reached']:.0%}" for name, result in row["results"].items())
            print(f"{rate} Hz, seed {seed}, stride {stride}: {shares}", flush=True)


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("updates", type=int, nargs="?", help="fewer updates than the preset's, to try it out")
    flags.add_argument("--table", type=Path, help="file of rows to fill")
    flags.add_argument("--out", type=Path, default=Path("runs/arm"), help="folder of logs and runs")
    flags.add_argument("--episodes", type=int, default=100)
    flags.add_argument("--seeds", type=int, default=1)
    asked = flags.parse_args()
    if asked.table is not None:
        table(asked.table, asked.out, asked.episodes, asked.seeds)
        return
    policy = train(100, asked.updates, 0, asked.out)
    found = reach(prompted(policy, 0), 100, 20, 0)
    print(f"stride {policy.preparation.stride}: reached {found['reached']:.0%} of 20 poses", file=sys.stdout)


if __name__ == "__main__":
    main()
