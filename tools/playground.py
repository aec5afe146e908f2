"""Writes docs/playground.json.xz, the policy behind the playground of the site: python tools/playground.py [RUN]

RUN is the folder of a maze's run; by default that of the quickstart, as `make quickstart` leaves it. The page itself is
made of it when the site is built (tools/docs_site.py), so it has the scripts of the day.
"""

from __future__ import annotations

import lzma
import sys
from pathlib import Path

import hilp
from hilp import storage
from hilp.evaluation import setup
from hilp.play import export, scene

NOTE = Path(__file__).parent.parent / "docs" / "playground.json.xz"
RUN = "runs/quickstart"


def main(run: str = RUN) -> None:
    policy = hilp.FoundationPolicy.load(run)
    stage = scene.Stage(policy, setup.acting_task(policy, setup.task_of(policy)), RUN)
    storage.write_bytes(NOTE, [lzma.compress(export.as_json(stage).encode(), preset=9)])
    print(f"{NOTE}: {NOTE.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main(*sys.argv[1:])
