"""Makes the zoo that comes with hilp, src/hilp/zoo: small policies, trained by ordinary commands and thinned out.

A wheel has no room for all the states that large policies keep of their data. These keep what their graph stands on and
some others; weights stay as they are. Each is evaluated as it is shipped and, where that differs, as it was trained:
the rows are in benchmarks/zoo.jsonl, and its card says what came of it.

Run: python tools/make_zoo.py [NAME ...]   (all of them: some ten minutes; what is trained in runs/zoo stays)
"""

from __future__ import annotations

import shlex
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import hilp
from hilp import cli, runs
from hilp.evaluation import rows as files
from hilp.policy.places import ZOO_FOLDER
from hilp.prompts.bank import LatentBank
from hilp.prompts.graph import Graph
from hilp.report import card

ROOT = Path(__file__).parent.parent
RUNS, ROWS = Path("runs") / "zoo", Path("benchmarks") / "zoo.jsonl"


@dataclass(frozen=True)
class Entry:
    """How a policy of the zoo is made."""

    about: str
    data: str
    evaluate: str
    states: int | None = None  # that it keeps of its data, besides those of its graph; None: all, as trained
    collect: str = ""  # where the data is not built in
    train: str = ""  # what differs from the preset
    pictures: int = 0  # whole transitions, of a policy that sees pictures; of the other states it keeps latents


ENTRIES = {
    "maze-large": Entry(
        "The built-in large maze, as in the quickstart: two numbers say where the robot is, two where it is pushed.",
        "maze-large",
        "--plan 0 3 auto --rewards right centre --episodes 200",
    ),
    "large-pixels": Entry(
        "The same maze seen from above, 32 x 32 pixels in colour: it knows no coordinates.",
        "maze-large-pixels",
        "--plan 0 auto --episodes 100",
        states=1_000,
        pictures=32,
        train=" --set lived=0",  # in pictures of mazes skills that were lived fare worse: 83% of goals, not 94%
    ),
    "ant-open": Entry(
        "An ant on open ground, from the narrow log of its own controller: it walks to places a few metres away, and "
        "at velocities that are asked for. Acting needs `pip install 'hilp[mujoco]'`.",
        str(RUNS / "ant-open-data"),
        "--plan 0 auto --rewards forward backward left right half stand --episodes 20",
        states=1_000,
        collect="--task ant-open --kind wander --steps 200000",
    ),
}


def main(names: list[str]) -> None:
    """Make the policies of these names, or all."""
    for name in names or ENTRIES:
        entry, run, shipped = ENTRIES[name], RUNS / name, ZOO_FOLDER / name
        if entry.collect and not Path(entry.data).exists():
            command(f"data collect {entry.collect} --out {entry.data}")
        if not (run / runs.POLICY / runs.CONFIG).is_file():
            begun = " --resume" if (run / runs.RUN).is_file() else ""
            command(f"pretrain --data {entry.data} --out {run}{entry.train}{begun}")
        trained = hilp.FoundationPolicy.load(run)
        policy = trained if entry.states is None else thinned(trained, entry.states, entry.pictures)
        shutil.rmtree(shipped, ignore_errors=True)
        policy.save(shipped)
        forget(name)
        for place in (f"zoo:{name}", *([] if policy is trained else [str(run)])):
            command(f"evaluate {place} {entry.evaluate} --rows {ROWS}")
        own = [row for row in files.read_rows(ROWS) if row["policy"] == policy.fingerprint]
        about = f"{entry.about} Made by `python tools/make_zoo.py {name}`."
        text = card.write(policy, name, f"zoo:{name}", own, license="mit", more=about)
        (shipped / "README.md").write_text(text)
        size = sum(path.stat().st_size for path in shipped.iterdir())
        print(f"zoo:{name}: {size / 1e6:.2f} MB, {policy.keeps}")


def command(words: str) -> None:
    """A line of the shell."""
    print(f"hilp {words}", flush=True)
    sys.argv = ["hilp", *shlex.split(words)]
    if code := cli.main(sys.argv[1:]):
        raise SystemExit(code)


def forget(name: str) -> None:
    """Drop the rows of an earlier policy of that name."""
    if ROWS.is_file():
        kept = [line for line in ROWS.read_text().splitlines(keepends=True) if f" zoo:{name} " not in line]
        ROWS.write_text("".join(line for line in kept if f" {RUNS / name} " not in line))


def thinned(policy: hilp.FoundationPolicy, states: int, pictures: int) -> hilp.FoundationPolicy:
    """The policy with the states that its graph stands on and so many others; the graph and all weights stay."""
    graph, latents = policy.graph, policy.latent_bank
    count = len(policy.bank if latents is None else latents)
    some = np.random.default_rng(0).choice(count, min(states, count), replace=False)
    rows = np.union1d(some, np.zeros(0, int) if graph is None else graph.landmarks)
    if graph is not None:
        graph = onto(graph, rows)
    if latents is None:
        return replace(policy, bank=policy.bank.over(lambda column: column[rows]), graph=graph)
    encoded = {name: column[rows] for name, column in latents.encoded.items()}
    thumbnails = np.isin(latents.shown, rows)
    shown = np.searchsorted(rows, latents.shown[thumbnails]).astype(np.int32)
    rest = latents.rest.over(lambda column: column[rows])
    fewer = LatentBank(rest, encoded, latents.thumbnails[thumbnails], shown)
    return replace(policy, bank=policy.bank.subsample(pictures, 0), latent_bank=fewer, graph=graph)


def onto(graph: Graph, rows: np.ndarray) -> Graph:
    """The graph of a bank of which only these rows are left, its landmarks among them."""
    rests = np.intersect1d(graph.rests, rows)
    places = (np.searchsorted(rows, old).astype(np.int32) for old in (graph.landmarks, rests))
    landmarks, rests = places
    return replace(graph, landmarks=landmarks, rests=rests)


if __name__ == "__main__":
    import os

    os.chdir(ROOT)
    main(sys.argv[1:])
