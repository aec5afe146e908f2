"""A policy's model card: README.md of its repository on the Hub, made from what the policy and its rows say.

`hilp push` writes it, and what is between two lines of it anew each time.
"""

import json
from collections.abc import Sequence
from typing import Any

from hilp.errors import printable
from hilp.evaluation.rows import Row
from hilp.policy.hub import BEGIN, END
from hilp.policy.policy import FoundationPolicy
from hilp.report.page import results_table

TAGS = ("hilp", "reinforcement-learning", "offline-reinforcement-learning", "zero-shot-rl", "goal-conditioned-rl")
PAPER = "https://arxiv.org/abs/2402.15567"


def write(
    policy: FoundationPolicy,
    name: str,
    where: str,
    rows: Sequence[Row] = (),
    license: str | None = None,
    datasets: Sequence[str] = (),
    more: str = "",
) -> str:
    """The card of a policy.

    where: what FoundationPolicy.load takes, e.g. hf://user/name. rows: its evaluations. datasets: of the Hub, that it
    was trained on. more: a paragraph about it.
    """
    origin = policy.provenance
    said = [
        f"A policy that is prompted with goals, rewards or skills, without further training. It was trained on "
        f"{_code(origin.data or 'data without a name')}, trajectories without rewards, by `{policy.method}` of hilp "
        f"([the paper]({PAPER})).",
        *([more] if more else []),
        "## Use it",
        "`pip install 'hilp[hub]'`, then:" if where.startswith("hf:") else "`pip install hilp`, then:",
        _fenced("python", _python(policy, where)),
        _fenced("", _shell(policy, where)),
        "## What it is",
        _table(["", ""], [[key, value] for key, value in _facts(policy).items() if value]),
        "## Results",
        *_results(rows),
        "## Licence",
        f"`{license}`." if license else "None was named: its owner says what may be done with it.",
    ]
    return "\n\n".join([_front(policy, name, license, datasets), f"# {printable(name)}", BEGIN, *said, END]) + "\n"


def _front(policy: FoundationPolicy, name: str, license: str | None, datasets: Sequence[str]) -> str:
    """The card's head in YAML, of which JSON is a part."""
    tags = dict.fromkeys([*TAGS, policy.method, *([policy.provenance.task] if policy.provenance.task else [])])
    head: dict[str, Any] = {"library_name": "hilp", "pipeline_tag": "robotics", "model_name": name}
    head |= {"license": license} if license else {}
    head |= {"tags": [*tags]} | ({"datasets": [*datasets]} if datasets else {})
    return "\n".join(["---", *(f"{key}: {json.dumps(value)}" for key, value in head.items()), "---"])


def _python(policy: FoundationPolicy, where: str) -> str:
    """Lines that act: towards a goal, and for a reward, as far as the method has a rule."""
    lines = ["import hilp", "", f"policy = hilp.FoundationPolicy.load({json.dumps(where)})"]
    keeps = len(policy.bank) > 1
    if keeps and policy.spec.parts:
        lines += ["states = policy.bank.observations  # some of its data, by the name of the part",
                  "here, there = ({name: part[row] for name, part in states.items()} for row in (0, 1))"]  # fmt: skip
    elif keeps:
        lines += ["here, there = policy.bank.observations[:2]  # two states of its data"]
    if keeps and policy.has_rule("goal_direction"):
        lines += ['action = policy.act(here, policy.goal(there, plan="auto"))']
    elif keeps and policy.has_rule("goal_skill"):
        lines += ["action = policy.act(here, policy.goal(there))"]
    elif keeps:
        lines += ["action = policy.act(here, policy.skill())"]
    if keeps and not policy.spec.parts and (policy.has_rule("cumulant") or policy.has_rule("backward")):
        lines += ["earn = policy.reward(None, lambda s, a, s2: s2[:, 0] - s[:, 0])  # see earn.r2",
                  "action = policy.act(here, earn)"]  # fmt: skip
    return "\n".join(lines)


def _shell(policy: FoundationPolicy, where: str) -> str:
    has_goals = policy.has_rule("goal_direction") or policy.has_rule("goal_skill")
    prompt = f"hilp prompt {where} {'--goal row:1' if has_goals else '--skill random'}"
    if policy.provenance.task is None:
        return prompt
    return "\n".join([f"hilp play {where}", prompt, f"hilp evaluate {where}"])


def _facts(policy: FoundationPolicy) -> dict[str, str]:
    origin, spec = policy.provenance, policy.spec
    parts = [f"{name} {' x '.join(map(str, shape)) or 'number'} ({kind})" for name, shape, kind in spec.parts]
    versions = [f"{name} {version}" for name, version in origin.versions.items()]
    return {
        "method": f"`{policy.method}`",
        "data": _code(origin.data) if origin.data else "",
        "fingerprint of the data": _code(origin.data_fingerprint) if origin.data_fingerprint else "",
        "task": _code(origin.task) if origin.task else "",
        "updates": f"{origin.steps:,}" if origin.steps is not None else "",
        "seed": str(origin.seed) if origin.seed is not None else "",
        "observation": ", ".join(parts) or f"{spec.observation_dim} numbers",
        "action": f"{spec.action_dim} numbers",
        "kept of its data": f"{policy.keeps}; whoever has the policy has these",
        "config": _code(json.dumps(policy.settings)),
        "fingerprint of the policy": _code(policy.fingerprint),
        "trained with": _code(", ".join(versions)) if versions else "",
    }


def _results(rows: Sequence[Row]) -> list[str]:
    """A table of each task's rows, and the commands that made them."""
    if not rows:
        return ["Nobody has measured it yet: `hilp evaluate` does."]
    said = []
    for task in dict.fromkeys(row["task"] for row in rows):
        own = [row for row in rows if row["task"] == task]
        headers, lines = results_table(own)
        kept = [number for number in range(len(headers)) if any(line[number] is not None for line in lines)]
        cells = [[_cell("" if line[number] is None else line[number]) for number in kept] for line in lines]
        made = dict.fromkeys(_code(row["command"]) for row in own if row.get("command"))
        said += [f"In {_code(task)}:", _table([headers[number] for number in kept], cells)]
        said += [f"Made by {', '.join(made)}."] if made else []
    return said


# ---- Markdown of texts that may come from anywhere -------------------------------------------------------------------


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"


def _table(headers: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [headers, ["---"] * len(headers), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _code(text: str) -> str:
    return f"`{_cell(text).replace('`', chr(39))}`"


def _cell(value: object) -> str:
    return printable(str(value)).replace("|", "\\|")
