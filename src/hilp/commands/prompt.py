"""`hilp prompt`: prompt a policy once and watch it run. And the flags that are a prompt, for those who serve one."""

from dataclasses import dataclass
from typing import ClassVar

from hilp.commands import common


@dataclass(frozen=True, kw_only=True)
class Asking(common.OfPolicy, common.PromptOptions):
    """The flags that say what a policy shall do."""

    kinds: ClassVar = ("goal", "reward", "skill", "follow", "load", "labels", "prefer")  # flags that are a prompt

    goal: str | None = None
    """goal: task3 (of the task), row:1234 (of the data), x=3,y=4, all numbers, or photo.png"""
    reward: str | None = None
    """named reward of the task, or a formula over the observation, e.g. "height - 0.1*norm(action)\""""
    labels: str | None = None
    """npz file of labelled samples: observations, next_observations, rewards"""
    skill: str | None = None
    """'random', 'prior' (opal: what the data would do, drawn anew every k steps), or numbers separated by commas"""
    load: str | None = None
    """a prompt saved earlier for this policy"""
    follow: str | None = None
    """data file whose first episode is a demonstration to follow; FILE:3 is its episode 3, counted from 0"""
    prefer: str | None = None
    """npz file of preferences: better and worse, segments of observations [pairs, rows, ...] each"""
    add: tuple[str, ...] = ()
    """saved prompts to add to this one: FILE, or WEIGHT:FILE, e.g. 0.5:earn.safetensors"""
    then: str | None = None
    """a saved prompt to change over to, once --until is met"""
    until: str | None = None
    """when --then begins: a number of steps, a formula that becomes true such as "x > 5", or 'reached' (default)"""
    window: int | None = None
    """rows that --follow heads ahead (default: as far as directions are trusted)"""
    plan: str | None = None  # type: ignore[assignment]  # a text, and only for goals
    """way to a goal: 0 (straight), recursions of midpoints, 'midpoints', 'graph' or 'auto' (default)"""
    data: str | None = None
    """data set to label with the reward, or to take a goal's row from (default: the transitions kept in the policy)"""
    task: str | None = None
    """task to run in (default: that of its data); one such as walker_run is a reward prompt, too"""
    seed: int = 0
    """seed of a random start or skill"""


@dataclass(frozen=True, kw_only=True)
class Prompt(Asking):
    """Prompt a policy once and watch it run in its task.

    Say what it shall do with one of --goal, --reward, --skill, --follow, --load, --labels and --prefer. Without a
    task it acts once, at one observation.
    """

    first: ClassVar = (*Asking.kinds[:5], "plan", "task", "start", "steps", "seed", "picture", "video", "save")
    example: ClassVar = "hilp prompt runs/maze --goal 10.5,1.5 --picture goal.png"

    adapt: int | None = None
    """episodes to search with among skills around the prompt's own, by what they earn (see --earn)"""
    earn: str | None = None
    """reward that --adapt counts (default: that of --reward, or the only one of the task)"""
    start: str | None = None
    """numbers of the start, separated by commas (default: random)"""
    steps: int | None = None
    """length of the episode (default: the task's limit)"""
    save: str | None = None
    """file to save the prompt to"""
    picture: str | None = None
    """PNG, SVG or PDF of the walk; of a log the planned way"""
    video: str | None = None
    """GIF, WebP or MP4 file to record the episode to; in a maze next to the same goal without a plan"""
    rerun: str | None = None
    """.rrd file to record the episode to for Rerun's viewer: path, plan, distance to go, latents, actions, pictures"""

    def __call__(self) -> None:
        from hilp.commands import prompt_run

        result = prompt_run.result_of(self)
        common.print_result(result if self.json else prompt_run.with_names(result, self.run), self.json)
