"""OGBench's environments by name, known without its package: an extra that is imported when one of them is used."""

from __future__ import annotations

from dataclasses import dataclass

from hilp.errors import HilpError, nearest
from hilp.tasks.rendering import VISUAL

VERSION = "-v0"  # how every registered name ends
MAZE_KINDS, ARM_KINDS = ("navigate", "stitch", "explore"), ("play", "noisy")  # what its data sets are called
# Names that would be another task's without their ending: antmaze-large is D4RL's, with another evaluation.
TAKEN = ("antmaze-large",)


@dataclass(frozen=True)
class Environment:
    """What is registered under a name."""

    name: str  # ours: without the ending, unless another task has that name
    registered: str  # OGBench's
    max_steps: int
    observation_dim: int
    action_dim: int
    body: str  # point, ant, humanoid or soccer in a maze; cube, scene or puzzle before an arm

    @property
    def has_arm(self) -> bool:
        return self.body in ("cube", "scene", "puzzle")


def _environments() -> dict[str, Environment]:
    arm, joint_numbers = 19, 9  # numbers of the arm; of a cube: position, quaternion, cosine and sine of its yaw
    rows: list[tuple[str, int, int, int, str]] = []
    for size in ("medium", "large", "giant", "teleport"):
        rows += [
            (f"pointmaze-{size}", 1000, 2, 2, "point"),
            (f"antmaze-{size}", 1000, 29, 8, "ant"),
            (f"humanoidmaze-{size}", 4000 if size == "giant" else 2000, 69, 21, "humanoid"),
        ]
    rows += [(f"antsoccer-{size}", 1000, 42, 8, "soccer") for size in ("arena", "medium")]
    sizes = {"single": (1, 200), "double": (2, 500), "triple": (3, 1000), "quadruple": (4, 1000), "octuple": (8, 1500)}
    for size, (cubes, steps) in sizes.items():
        rows.append((f"cube-{size}", steps, arm + joint_numbers * cubes, 5, "cube"))
    rows.append(("scene", 750, arm + joint_numbers + 2 * 4 + 4, 5, "scene"))
    for size, steps in (("3x3", 500), ("4x4", 500), ("4x5", 1000), ("4x6", 1000)):
        buttons = int(size[0]) * int(size[2])
        rows.append((f"puzzle-{size}", steps, arm + 4 * buttons, 5, "puzzle"))
    found = {}
    for plain, steps, observation, action, body in rows:
        name = plain + VERSION if plain in TAKEN else plain
        found[name] = Environment(name, plain + VERSION, steps, observation, action, body)
    return found


ENVIRONMENTS = _environments()
NAMES = tuple(ENVIRONMENTS)


def takes(name: str) -> bool:
    """Whether a name is one of OGBench's, also one that is refused when it is made."""
    plain = name.removesuffix(VERSION)
    base = plain.removeprefix(VISUAL).partition("-singletask")[0]
    return bool(_known(name) or (base != plain and _known(base + VERSION))) or plain.startswith("powderworld-")


def find(name: str) -> Environment:
    """The environment of a name: OGBench's, ours without the version, or that of a data set (cube-single-play-v0).

    Of a visual one that with states.
    """
    found = _known(name)
    if found is not None:
        return found
    plain = name.removesuffix(VERSION)
    if plain.startswith("powderworld-"):
        raise HilpError(f"{name} observes images, which tasks here do not: it has no version with states")
    if plain.startswith(VISUAL):
        return find(plain.removeprefix(VISUAL) + VERSION)
    if "-singletask" in plain:
        instead = plain.split("-singletask")[0]
        raise HilpError(f"{name} is one goal as a reward: take {instead} and one of its goals, task1 to task5")
    raise HilpError(f"unknown OGBench environment '{name}': {nearest(name, NAMES)}")


def of_data(name: str) -> Environment | None:
    """The environment of a data set with a name of OGBench's (pointmaze-large-stitch-v0), None for other names."""
    base, _, kind = name.removesuffix(VERSION).rpartition("-")
    found = ENVIRONMENTS.get(base) or ENVIRONMENTS.get(base + VERSION)
    return found if found is not None and kind in (ARM_KINDS if found.has_arm else MAZE_KINDS) else None


def _known(name: str) -> Environment | None:
    plain = name.removesuffix(VERSION) if name not in ENVIRONMENTS else name
    return ENVIRONMENTS.get(plain) or of_data(name)
