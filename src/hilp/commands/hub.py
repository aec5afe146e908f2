"""`hilp push` and `hilp pull`: policies to the Hugging Face Hub and back."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from tyro.conf import Positional, arg

from hilp import runs
from hilp.commands import common
from hilp.errors import HilpError

with common.WhenUsed():
    from hilp.evaluation import rows as files
    from hilp.policy import artifact, hub, places
    from hilp.policy.policy import FoundationPolicy
    from hilp.report import card

OnHub = Annotated[Positional[str], arg(metavar="REPO")]


@dataclass(frozen=True)
class Push(common.OfPolicy):
    """Publish a policy on the Hugging Face Hub, with a card made from its run.

    What goes there is the policy's folder: weights, config, and the sample of its data that it keeps. A new repository
    has to be --public or --private. `hf auth login` once, or HF_TOKEN, says who you are.
    """

    example: ClassVar = "hilp push runs/maze user/maze --private --license mit"

    to: OnHub
    """repository to make, or to add a revision to: USER/NAME"""
    public: bool = False
    """a new repository is for all to see"""
    private: bool = False
    """a new repository is for you, and those you let in"""
    license: str | None = None
    """licence of the policy for its card, as the Hub calls it: mit, apache-2.0, cc-by-4.0, ..."""
    datasets: tuple[str, ...] = ()
    """data sets of the Hub that it was trained on, USER/NAME each, for its card"""
    dry_run: bool = False
    """print the card and what would be pushed, and push nothing"""

    def __call__(self) -> None:
        there = hub.Repository.named(self.to)
        if self.public and self.private:
            raise HilpError("--public or --private: a repository is one of both")
        if self.license is not None and not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", self.license):
            raise HilpError(
                f"--license takes a name as the Hub has it, such as mit or apache-2.0, not '{self.license}'"
            )
        folder, home = places.find(self.run)
        policy = FoundationPolicy.load(folder)  # which checks it
        rows = files.read_rows(home / runs.ROWS) if (home / runs.ROWS).is_file() else []
        rows = files.latest(row for row in rows if row["policy"] == policy.fingerprint)
        data = [hub.Repository.named(name).id for name in self.datasets]
        text = card.write(policy, there.name, f"hf://{there.id}", rows, self.license, data)
        result = {"files": [*artifact.files(folder), hub.CARD], "kept of its data": policy.keeps}
        if self.dry_run:
            if self.json:
                return common.print_json({"would be pushed to": str(there), **result, "card": text})
            print(text, flush=True)
            return common.print_result({"would be pushed to": str(there), **result}, False)
        done = hub.push(folder, there, text, public=self.public if self.public or self.private else None)
        seen = "for those you let in" if done.private else "for all to see"
        result = {"pushed to": done.address, "visible": seen, "revision": done.revision, **result}
        common.print_result({**result, "load it with": f'hilp.FoundationPolicy.load("{there}")'}, self.json)


@dataclass(frozen=True)
class Pull(common.Verb):
    """Download a policy from the Hugging Face Hub to a folder of your own.

    No code runs: only the files that a policy has are taken, and only a policy that loads is kept. Verbs that take a
    RUN take hf://USER/NAME, too, and then no folder is made.
    """

    example: ClassVar = "hilp pull user/maze --out runs/maze"

    source: OnHub
    """repository, USER/NAME or USER/NAME@REVISION"""
    out: str | None = None
    """folder to write (default: runs/NAME)"""
    overwrite: bool = False
    """replace the policy that is there"""

    def __call__(self) -> None:
        there = hub.Repository.named(self.source)
        out = Path("runs") / there.name if self.out is None else Path(self.out)
        policy = FoundationPolicy(**hub.pull(there, out, self.overwrite))
        found = {"out": str(out), "policy": policy.fingerprint, "method": policy.method, "task": policy.provenance.task}
        common.print_result({key: value for key, value in found.items() if value is not None}, self.json)
