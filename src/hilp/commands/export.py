"""`hilp export`: a policy for runtimes without JAX."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hilp.commands import common


@dataclass(frozen=True)
class Flags:
    """Write a policy for robots and other programs that have numpy, or an ONNX runtime, alone."""

    run: common.RunFolder
    """folder of a run or of a policy"""
    to: Literal["numpy", "onnx"]
    """numpy: one file of arrays and a runtime of one file; onnx: graphs of act, encode and goals (hilp[onnx])"""
    out: str
    """folder to write"""
    prompts: tuple[str, ...] = ()
    """saved prompts that go along, hierarchies too (numpy only)"""
    overwrite: bool = False
    """replace an earlier export"""
    json: bool = False
    """print JSON"""


def run(flags: Flags) -> int:
    from hilp import export

    policy, _ = common.load_policy(flags.run)
    written = export.write(policy, flags.to, flags.out, flags.prompts, flags.overwrite)
    if not flags.json:
        written = {
            key: ", ".join(value) if isinstance(value, list) else value for key, value in written.items() if value != []
        }
    common.print_result(written, flags.json)
    return 0
