"""Makes the zoo that comes with hilp, src/hilp/zoo: small policies, trained by ordinary commands and thinned out.

A wheel has no room for all that policies keep of their data, and weights pack badly. So these keep fewer states, with a
graph of those, and their numbers are rounded to half precision. Each is evaluated as it is shipped and as it was
trained: the rows are in benchmarks/zoo.jsonl, and its card says what came of it.

Run: python tools/make_zoo.py [NAME ...]   (all of them: some ten minutes; what is trained in runs/zoo stays)
"""

from __future__ import annotations

import shlex
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import hilp
from hilp import cli, runs
from hilp.evaluation import rows as files
from hilp.policy.places import ZOO_FOLDER
from hilp.prompts.bank import Bank
from hilp.report import card

ROOT = Path(__file__).parent.parent
RUNS, ROWS = Path("runs") / "zoo", Path("benchmarks") / "zoo.jsonl"


@dataclass(frozen=True)
class Entry:
    """How a policy of the zoo is made."""

    about: str
    data: str
    evaluate: str
    states: int  # that it keeps of its data
    collect: str = ""  # where the data is not built in
    pictures: int = 0  # whole transitions, of a policy that sees pictures; of the other states it keeps latents


ENTRIES = {
    "maze-large": Entry(
        "The built-in large maze, as in the quickstart: two numbers say where the robot is, two where it is pushed.",
        "maze-large",
        "--plan 0 3 auto --rewards right --episodes 100",
        states=10_000,
    ),
    "large-pixels": Entry(
        "The same maze seen from above, 32 x 32 pixels in colour: it knows no coordinates.",
        "maze-large-pixels",
        "--plan 0 auto --episodes 100",
        states=1_000,
        pictures=32,
    ),
    "ant-open": Entry(
        "An ant on open ground, from the narrow log of its own controller: it walks to places a few metres away, and "
        "at velocities that are asked for. Acting needs `pip install 'hilp[mujoco]'`.",
        str(RUNS / "ant-open-data"),
        "--plan 0 auto --rewards forward backward left right half stand --episodes 20",
        states=1_500,
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
            command(f"pretrain --data {entry.data} --out {run}{begun}")
        trained = hilp.FoundationPolicy.load(run)
        policy = smaller(rounded(trained), hilp.load(entry.data), entry.states, entry.pictures)
        shutil.rmtree(shipped, ignore_errors=True)
        policy.save(shipped)
        forget(name)
        for place in (f"zoo:{name}", str(run)):
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


def smaller(policy: hilp.FoundationPolicy, data: hilp.Dataset, states: int, pictures: int) -> hilp.FoundationPolicy:
    """The policy as training leaves it that is told to keep so many states (--bank), and of these so few whole."""
    bank = Bank.draw(data, min(states, pictures or states), policy.provenance.seed or 0)
    fewer = replace(policy, bank=bank.over(halved), graph=None, latent_bank=None).with_skills(data)
    fewer = fewer.with_latents(data, states)
    return fewer if policy.graph is None else fewer.with_graph(data)


def rounded(policy: hilp.FoundationPolicy) -> hilp.FoundationPolicy:
    """The policy with weights of half precision, in float32 as before: a wheel packs their zeros to nothing."""
    return replace(policy, core=jax.tree.map(lambda leaf: jnp.asarray(halved(np.asarray(leaf))), policy.core))


def halved(numbers: np.ndarray) -> np.ndarray:
    """Rounded to what float16 can say; bytes and whole numbers as they are."""
    return numbers.astype(np.float16).astype(np.float32) if numbers.dtype == np.float32 else numbers


if __name__ == "__main__":
    import os

    os.chdir(ROOT)
    main(sys.argv[1:])
