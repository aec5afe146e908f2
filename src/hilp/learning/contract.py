"""The contract of a method: what passes between its file and the rest of the package.

A method is one file with five names: `Config`, `sample(cfg, index, key)`, `init(cfg, spec, key)`,
`update(cfg, state, batch, key) -> (state, info)` and `export(cfg, state)`. It may have more: `PRESETS`, `stages(cfg)`
where it learns one thing after the other, `reference(cfg)` where it learns distances (config values of a V(s, g) to
compare them with), and `COLUMNS`, the names of extra columns of the data that its sampler needs (`rewards`).
docs/add-a-method.md goes through them with an example.

What it exports is a tree of arrays with `skill_dim`, `act(observation, z)` and those rules that it has; prompts use
a rule, never a method's name:

| rule | what it gives |
|---|---|
| `encode(s)` | the latent of a state |
| `goal_direction(here, there)` | goal rule by direction: the skill from one latent to another, at every step |
| `distance(here, there)` | with `goal_direction`: of latents, where it is not |there - here| (a directed one) |
| `discount` | with `goal_direction`: distances differ up to about 1 / (1 - discount) steps; `plan="auto"` needs it |
| `goal_skill(goal)` | goal rule by name: the one skill of a goal |
| `cumulant(s, s')` | reward rule: features to regress a reward on |
| `backward(s')` | reward rule: features whose reward-weighted mean is the skill |
| `project(z)` | the valid skill in the direction of z; methods whose skill is the goal itself have none |
| `skill_of(observations, actions, steps)` | the skill that segments of up to k steps followed, for a high level |
| `skill_horizon` | with `skill_of`: the k that skills were learnt for; without it any k will do |
| `prior(s, noise)` | the skill that standard normal noise draws from p(z given s) |

A segment is rows (batch x (k + 1)) and the actions between them (batch x k), of which the first `steps` are real; one
that met its episode's end stays on the last row. An export with `skill_dim` 0 was trained for one task and takes no
prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jax import Array

Info = dict[str, Array]  # scalar metrics of one update


class Stage(NamedTuple):
    """A part of training, with a sampler and an update of its own; the state goes on from one to the next.

    A column is a function of (cfg, state, observations), batch x dim, that is computed once for all rows of the data
    when the stage begins, and again when it is resumed: so it may depend only on what the stage does not train. The
    stage's sampler draws rows of it by name, as of any other column.
    """

    sample: Callable[..., Any]
    update: Callable[..., tuple[Any, Info]]
    until: int | None = None  # the update that it ends before; None: the end of the run
    columns: Mapping[str, Callable[..., Array]] = {}
