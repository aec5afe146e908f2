"""What several verbs share: reading values of flags, finding a policy and its task, and printing safely."""

import json
import math
import os
import shlex
import sys
from dataclasses import dataclass, fields, replace
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from hilp import runs
from hilp.errors import MOST as MOST_STEPS
from hilp.errors import HilpError, printable, require_count, require_seed, say, some
from hilp.prompts import specs

if TYPE_CHECKING:
    import numpy as np

    from hilp.data.dataset import Dataset
    from hilp.policy.policy import FoundationPolicy


class WhenUsed:
    """Modules imported inside are read once a verb uses them, so that its --help answers at once.

    Not those of `storage`, `tasks` and `collectors`: a package is read before what is in it, and these need numpy.
    """

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name.startswith("hilp.") else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec

    def __enter__(self) -> None:
        sys.meta_path.insert(0, self)

    def __exit__(self, *_: object) -> None:
        sys.meta_path.remove(self)


with WhenUsed():
    from hilp import storage
    from hilp.data import dataset
    from hilp.report import markup, video

RunFolder = Annotated[Positional[str], arg(metavar="RUN")]
MAY_BE_0 = ("bank", "curve_points", "port", "process", "retries")
PICTURES = (".png", ".svg", ".pdf")
VIDEO_FPS = 30.0
MOST = {"port": 65_535, "seeds": 10_000, "episodes": 1_000_000, "workers": 10_000, "jobs": 1_000}


# ---- values of flags -------------------------------------------------------------------------------------------------


def require_picture(flag: str, path: str | None) -> None:
    """Raise where a picture has an ending that cannot be drawn, before anything is run for it."""
    if path is not None and Path(path).suffix not in PICTURES:
        raise HilpError(f"{flag} takes a file that ends in {', '.join(PICTURES)}, not '{path}'")


def require_video(world: Any, path: str) -> None:
    """Raise where a task cannot be filmed or the file has no such ending, before anything is run for it."""
    if not hasattr(world, "film") and not world.has_goals:  # what has goals has a plan to draw a film on
        raise HilpError(f"{world.name} cannot be recorded as a video: draw it with `hilp prompt --picture`")
    if Path(path).suffix.lower() not in video.ENDINGS:
        raise HilpError(f"--video takes a file that ends in {', '.join(video.ENDINGS)}, not '{path}'")


def key_value(text: str, flag: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise HilpError(f"{flag} takes key=value, not '{text}'")
    return key.strip(), value.strip()


def config_values(texts: tuple[str, ...]) -> dict[str, str]:
    """The config values that --set changes."""
    return dict(key_value(text, "--set") for text in texts)


def numbers(text: str, flag: str) -> "np.ndarray":
    import numpy as np

    try:
        return np.array([float(part) for part in text.split(",")], np.float32)
    except ValueError:
        raise HilpError(f"{flag} takes numbers separated by commas, not '{text}'") from None


def plan(text: str) -> int | str:
    """The recursions of a plan, or the name of a way to plan."""
    if text in specs.PLANS:
        return text
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise HilpError(f"--plan takes numbers of recursions or one of {some(specs.PLANS)}, not '{text}'")
    return int(text)


# ---- flags of many verbs ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Verb:
    """What every verb takes that prints a result."""

    json: bool = False
    """print JSON, a line a result, and no progress"""

    def __post_init__(self) -> None:
        """Numbers of things are at least 1 and no more than makes sense, seeds what every generator takes."""
        for field in fields(self):
            value, flag = getattr(self, field.name), f"--{field.name.replace('_', '-')}"
            if field.name == "seed":
                require_seed(value, flag)
            elif isinstance(value, str) and not value.strip() and value != field.default:
                raise HilpError(f"{flag} is empty: give it a value, or leave it out")
            elif type(value) is int:
                require_count(flag, value, int(field.name not in MAY_BE_0), MOST.get(field.name, MOST_STEPS))


@dataclass(frozen=True, kw_only=True)
class OfPolicy(Verb):
    """What verbs about a trained policy take."""

    run: RunFolder
    """folder of a run or of a policy, zoo:NAME (maze-large, large-pixels, ant-open), or hf://USER/NAME[@REVISION]"""


# ---- data, policies and tasks ----------------------------------------------------------------------------------------


NAMED_OPTIONS = ("split", "angles", "drop", "discrete_actions")  # of every format, each a flag


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How to read data: the flags of every verb that does."""

    format: str | None = None
    """read the data as this format (default: recognised by content)"""
    option: tuple[str, ...] = ()
    """options of the format's reader: key=value ..."""
    columns: tuple[str, ...] = ()
    """which columns are what, * standing for any letters: observations=q_*,yaw actions=u1,u2 episode_ids=run time=t"""
    split: str | None = None
    """split episodes at rows without numbers and at gaps in time: nan, gap or nan,gap"""
    angles: str | None = None
    """columns whose sine and cosine networks see, with a period where they do not wrap: q1,q2=360, auto or none
    (default: none; `hilp pretrain` on data without a task: auto)"""
    drop: str | None = None
    """columns that networks do not see: constant, duplicate or constant,duplicate"""
    frames: int | None = None
    """rows that networks see at once, a row and those before it: of films their pictures, else the numbers, where one
    observation does not tell the state (default: as the data says, or 1)"""
    rescale_actions: bool = False
    """map each action column's range to [-1, 1]; a policy maps its actions back"""
    discrete_actions: str | None = None
    """how many discrete actions there are, auto (as many as the data shows) or none (default: a single column of
    whole-number type with few values is discrete)"""

    def options(self) -> dict[str, Any]:
        """What `hilp.load` takes besides the source, the format and the scale of actions."""
        found = reader_options(self.option)
        if self.columns:
            found["columns"] = column_names(self.columns)
        return found | {name: getattr(self, name) for name in NAMED_OPTIONS if getattr(self, name)}

    def recipe(self, source: str) -> dict[str, Any]:
        """What `named.load` takes to read a source as the flags say, in strings and numbers."""
        found = {"source": source, "format": self.format, "rescale_actions": self.rescale_actions, **self.options()}
        return found if self.frames is None else {**found, "frames": self.frames}

    def words(self) -> list[str]:
        """The flags again, to be typed in another command."""
        words = []
        for field in fields(Reading):
            value, flag = getattr(self, field.name), f"--{field.name.replace('_', '-')}"
            if value != field.default:
                several = value if isinstance(value, tuple) else (value,)
                words.append(" ".join([flag, *(quoted(str(one)) for one in several if one is not True)]))
        return words

    def keep_in(self, run: str, source: str) -> None:
        """Note in a run how its data was read, for other data of the kind."""
        if self.words():
            values = {known.name: getattr(self, known.name) for known in fields(Reading)}
            storage.write_json(Path(run) / runs.READING, {"data": source, **values})


@dataclass(frozen=True, kw_only=True)
class PromptOptions(Reading, specs.GoalOptions, specs.RewardOptions):
    """The options of goal and reward prompts as flags: each field of the specs is a flag."""

    goal_dims: str | None = None  # type: ignore[assignment]  # one word
    """columns of goals that count, by name or number, if not all do: x,y is a place, whatever the posture"""
    rule: specs.Rule = "auto"
    """turn a reward into a skill, the goal of highest reward (HILP-G), a plan on the graph, or what the best-paid
    segments of the data did (hindsight); auto: by the method and the R2"""

    def given_options(self, kind: type[specs.Spec] | None = None) -> list[str]:
        """The options that the flags change, other than --plan; kind: of this kind of prompt only."""
        return [name for one in (specs.Goal, specs.Reward) if kind in (None, one) for name in self._changed(one)]

    def with_options(self, spec: Any) -> Any:
        """A spec with the goal and the options that the flags name; other prompts as they are."""
        if not isinstance(spec, specs.Goal | specs.Reward):
            return spec
        options = self._changed(type(spec))
        if isinstance(spec, specs.Goal):
            options["goal"] = getattr(self, "goal", None)
        return replace(spec, **options)

    def _changed(self, kind: Any) -> dict[str, Any]:
        own = [field for field in fields(kind) if field.kw_only and field.name not in ("plan", "seed")]
        return {field.name: getattr(self, field.name) for field in own if getattr(self, field.name) != field.default}


def read_as_trained(run: str, source: str, flags: Reading, **more: Any) -> "Dataset":
    """Data for a policy: read as the flags say, or without any, as a run read its own of the same kind of file."""
    kept = None if flags.words() else _kept_reading(Path(run), Path(source))
    if kept is not None:
        say(f"{source} is read as the run's own data: {' '.join(kept.words())}")
    return load_data(source, kept or flags, **more)


def _kept_reading(run: Path, source: Path) -> Reading | None:
    path = runs.reading(run)
    if path is None or not source.exists() or dataset.is_native(source):
        return None
    try:
        found = json.loads(path.read_text())
        if Path(found.pop("data")).suffix != source.suffix:
            return None
        values: dict[str, Any] = {key: tuple(one) if isinstance(one, list) else one for key, one in found.items()}
        return Reading(**values)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise HilpError(f"{path} is damaged ({error}): delete it, and say how to read the data by flags") from error


def load_data(source: str, reading: Reading, verify: bool = False, **more: Any) -> "Dataset":
    """The data set that --data names, read as the flags of `Reading` and --verify say; `more` goes to `hilp.load`."""
    from hilp.collectors import named

    return named.load(**reading.recipe(source) | ({"verify": True} if verify else {}) | more)


def column_names(texts: tuple[str, ...]) -> dict[str, list[str] | str]:
    """What --columns says: names separated by commas, or a JSON list of names that hold one."""
    columns: dict[str, list[str] | str] = {}
    for text in texts:
        what, names = key_value(text, "--columns")
        if what in columns:
            raise HilpError(f"--columns names {what} twice: give all of its columns at once, {what}=a,b")
        try:
            found = json.loads(names)
        except (ValueError, RecursionError):
            found = [name.strip() for name in names.split(",")]
        found = [str(name) for name in found] if isinstance(found, list) else [names]
        columns[what] = found if what in ("observations", "actions") or len(found) > 1 else found[0]
    return columns


def reader_options(texts: tuple[str, ...]) -> dict[str, Any]:
    """Options of a reader from key=value: numbers, true, false and JSON lists as such, anything else as text."""
    options: dict[str, Any] = {}
    for text in texts:
        key, value = key_value(text, "--option")
        try:
            options[key] = json.loads(value)
        except ValueError:
            options[key] = value
        except RecursionError:
            raise HilpError(f"--option {key} is nested too deeply: give a flat value") from None
    return options


def load_policy(run: str | Path) -> "tuple[FoundationPolicy, Path]":
    """A policy and the folder that its rows belong to."""
    from hilp.policy import places
    from hilp.policy.policy import FoundationPolicy

    place = places.find(run)
    return FoundationPolicy.load(place.folder), place.home


# ---- what is printed -------------------------------------------------------------------------------------------------


def print_json(*values: Any) -> None:
    """A line of JSON each that every parser takes: a NaN or an infinity, which JSON does not have, becomes null."""
    for value in values:
        print(json.dumps(_finite(value), allow_nan=False), flush=True)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def print_result(result: dict[str, Any], as_json: bool) -> None:
    """A result as one JSON line, or a line a value."""
    if as_json:
        return print_json(result)
    for name, value in result.items():
        if isinstance(value, list) and value and isinstance(value[0], str):
            value = ", ".join(value)
        elif isinstance(value, list):
            value = " ".join(f"{number:.3g}" for number in value)
        elif isinstance(value, float):
            value = float(f"{value:.4g}")
        if value != "":
            print(f"{name}: {printable(str(value))}")


def print_table(headers: list[str], lines: list[list[Any]], title: str) -> None:
    show(markup.rich_table(headers, lines, title))


def show(renderable: Any) -> None:
    """Print something of rich's; names of files in it cannot send codes to the terminal."""
    from rich.console import Console
    from rich.segment import Segment, Segments

    console = Console()
    segments = [Segment(printable(text, keep="\n"), style) for text, style, _ in console.render(renderable)]
    with console.capture() as text:  # rich would end the process at a closed pipe
        console.print(Segments(segments), end="")
    print(text.get(), end="")


def command() -> str:
    """The command as it was typed, so that a shell takes it again whatever bytes its words hold."""
    return " ".join(["hilp", *map(quoted, sys.argv[1:])])


def quoted(word: str) -> str:
    """A word for a shell; one that cannot be printed as it is becomes $'...' with its bytes as escapes."""
    if word.isprintable():
        return shlex.quote(word)
    kept = (c if c.isprintable() and c not in "\\'" else "".join(f"\\x{b:02x}" for b in os.fsencode(c)) for c in word)
    return f"$'{''.join(kept)}'"
