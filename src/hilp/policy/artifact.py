"""A policy's folder: config.json, weights and the bank. docs/formats.md describes it.

Folders appear whole: they are written next to their target and then take its name, so a kill at any instant leaves the
old policy or the new one. Nothing in a folder is believed: sizes are held against what the files hold before anything
is built from them, and loading runs no code.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from hilp import runs, storage
from hilp.errors import HilpError, place_of
from hilp.learning import methods
from hilp.policy.preparation import Preparation
from hilp.prompts.bank import Bank, LatentBank
from hilp.prompts.graph import Graph
from hilp.prompts.specs import PLANS
from hilp.runs import CONFIG
from hilp.spec import Spec
from hilp.versions import versions

FORMAT = "hilp-policy"
VERSION = 5  # 1 to 4: names of an earlier hilp, which this one does not know
WEIGHTS, BANK, GRAPH, LATENTS = (f"{name}.safetensors" for name in ("weights", "bank", "graph", "latents"))
OPTIONAL = {GRAPH: "graph", LATENTS: "latents"}  # files, and the keys of config.json that say that they are there
IDENTITY = ("method", "config", "spec", "preparation")  # what the fingerprint covers besides the arrays
SHOWN = 200  # characters of another library's error
DAMAGE = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)


LOOKS_RIGHT: dict[str, Callable[[Any], bool]] = {  # pages and tables show these, and folders may come from anywhere
    **dict.fromkeys(("data", "data_fingerprint", "task"), lambda value: isinstance(value, str)),
    **dict.fromkeys(("steps", "seed"), lambda value: type(value) is int and value >= 0),
    "first_observation": lambda value: isinstance(value, list) and {*map(type, value)} <= {int, float},
    "moving": lambda value: type(value) in (int, float) and value >= 0,
    "plan": lambda value: value in PLANS or (type(value) is int and value >= 0),
    "versions": lambda value: isinstance(value, dict) and all(isinstance(text, str) for text in value.values()),
}


@dataclass(frozen=True)
class Provenance:
    """The data and the training behind a policy's weights; empty where it is not known."""

    data: str | None = None  # name of the data set
    data_fingerprint: str | None = None
    task: str | None = None  # that the data was collected in
    first_observation: list[float] | None = None  # of the data: some goals look like it
    steps: int | None = None  # updates
    seed: int | None = None
    moving: float | None = None  # change of latent distances in the last part of training, relative to their mean
    plan: int | str | None = None  # that held-out data advises for goals
    versions: dict[str, str] = field(default_factory=dict)  # of the software that trained it

    @staticmethod
    def from_json(origin: dict[str, Any]) -> "Provenance":
        """From what a policy's folder says; keys of a later hilp are passed over, a ValueError where a value is odd."""
        for key, value in origin.items():
            if key in LOOKS_RIGHT and value is not None and not LOOKS_RIGHT[key](value):
                raise ValueError(f"'{key}' of its origin is not what it should be")
        return Provenance(**{key: value for key, value in origin.items() if key in LOOKS_RIGHT})

    def to_json(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value not in (None, {})}


def save(policy: Any, path: str | os.PathLike[str]) -> Path:
    """Write the folder; a policy that was there is replaced in one step, other files in it stay."""
    folder = place_of("the folder of a policy", path)
    with storage.told(f"cannot write {folder}", (OSError, ValueError)):  # ValueError: a zero byte in the name
        if folder.exists() and not folder.is_dir():
            raise HilpError(f"cannot write {folder}: it is a file")
        if folder.exists() and Path.cwd().is_relative_to(folder.resolve()):  # swapped, it would be gone under our feet
            if (folder / CONFIG).exists():
                raise HilpError(f"cannot replace the policy in {folder} from inside it: save from another folder")
            _write(policy, folder)
            return folder
        storage.clean_leftovers(folder)
        with storage.new_folder(folder) as temporary:
            _write(policy, temporary)
            if folder.exists():
                storage.carry_over(folder, temporary)
                shutil.copymode(folder, temporary)  # a folder that is shared stays so
    return folder


def _write(policy: Any, folder: Path) -> None:
    """config.json comes last: a folder without one is no policy."""
    storage.write_arrays(folder / WEIGHTS, storage.flatten(policy.core))
    for name, part in {BANK: policy.bank, GRAPH: policy.graph, LATENTS: policy.latent_bank}.items():
        if part is not None:
            storage.write_arrays(folder / name, part.columns())
    description = {
        "format": FORMAT,
        "version": VERSION,
        **describe(policy),
        "fingerprint": policy.fingerprint,
        "observation_parts": [[name, list(shape)] for name, shape in policy.observation_parts],
        "graph": policy.graph is not None,
        **({} if policy.latent_bank is None else {"latents": True}),
        "origin": {"versions": versions(), **policy.provenance.to_json()},
    }
    storage.write_json(folder / CONFIG, description)


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a policy's folder holds, or that of the run that trained it, by the names of FoundationPolicy's fields."""
    folder = runs.find(place_of("the folder of a policy", path))
    description = _read_description(folder)
    names = _arrays_of(description)
    arrays = {name: storage.read_arrays(folder / name)[0] for name in names}
    try:  # before anything is built from the config, which would fail in its own way on a changed value
        found = fingerprint({key: description[key] for key in IDENTITY}, *arrays.values())
    except RecursionError:
        raise HilpError(f"{folder / CONFIG} is damaged (it is nested too deep): restore it from a copy") from None
    if found != description["fingerprint"]:
        named = f"{', '.join([CONFIG, *names[:-1]])} or {names[-1]}"
        raise HilpError(f"{folder}: {named} was changed (fingerprints differ): restore a copy")
    if description["method"] not in methods.names():
        raise HilpError(
            f"{folder} is a policy of the method '{description['method']}', which is not installed here: install the "
            "package that it comes with"
        )
    try:
        config, spec, preparation, like = parse_description(description, arrays[WEIGHTS])
        parts = tuple((str(n), tuple(map(int, shape))) for n, shape in description.get("observation_parts", []))
        known = {"config": config, "spec": spec, "preparation": preparation, "observation_parts": parts}
        known["provenance"] = Provenance.from_json(dict(description["origin"]))
    except (*DAMAGE, HilpError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0][:SHOWN]
        raise HilpError(f"{folder / CONFIG} does not describe a policy ({why}): restore a copy") from error
    known["core"] = storage.unflatten(like, arrays[WEIGHTS], folder / WEIGHTS)

    def part(name: str, read: Callable[[Mapping[str, np.ndarray]], Any]) -> Any:
        try:
            return read(arrays[name]) if name in arrays else None
        except DAMAGE as error:
            raise HilpError(f"{folder / name} does not fit this policy: restore it from a copy") from error

    bank = part(BANK, lambda columns: Bank.from_columns(columns, spec))
    latents = part(LATENTS, lambda columns: LatentBank.from_columns(columns, spec))
    graph = part(GRAPH, lambda columns: Graph.from_columns(columns, len(latents or bank)))
    return {**known, "bank": bank, "graph": graph, "latent_bank": latents}


def files(folder: Path) -> list[str]:
    """The files of a policy's folder."""
    return [CONFIG, *_arrays_of(_read_description(folder))]


def _arrays_of(description: Mapping[str, Any]) -> list[str]:
    """Said in config.json, because the file of a policy that was here before may still lie in the folder."""
    return [WEIGHTS, BANK, *(name for name, key in OPTIONAL.items() if description.get(key))]


def _read_description(folder: Path) -> dict[str, Any]:
    description = storage.read_json(folder / CONFIG)
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise HilpError(f"{folder / CONFIG} is not the config of a hilp policy")
    version = description.get("version")
    if type(version) is not int or version != VERSION:
        later = type(version) is int and version > VERSION
        advice = "of a later hilp: update hilp" if later else "of an earlier hilp: train the policy again"
        raise HilpError(f"{folder} has format version {version}, this hilp reads {VERSION}: it is {advice}")
    lacking = [key for key in (*IDENTITY, "fingerprint", "origin") if key not in description]
    if lacking:
        raise HilpError(f"{folder / CONFIG} is incomplete (no '{lacking[0]}'): restore it from a copy")
    return description


def describe(one: Any) -> dict[str, Any]:
    """What the weights of a policy, or of a high level, mean."""
    return {
        "method": methods.name_of(one.config),
        "config": methods.config_values(one.config),
        "spec": one.spec.to_json(),
        "preparation": one.preparation.to_json(),
    }


def parse_description(
    description: Mapping[str, Any], weights: Mapping[str, np.ndarray]
) -> tuple[Any, Spec, Preparation, Any]:
    """Config, spec, preparation and the shapes of the weights, as config.json (or the note of a prompt) says.

    Shapes are found without computing: a config that asks for terabytes is known by them not to fit its file.
    """
    values = description["config"]
    if any(isinstance(value, list) and len(value) > len(weights) for value in values.values()):
        raise ValueError(f"more layers than the {len(weights)} arrays of {WEIGHTS}")
    config = methods.configure(methods.config(description["method"]), values)
    module = methods.of(config)
    spec = Spec.from_json(description["spec"])
    preparation = Preparation.from_json(description["preparation"], spec)
    seen = preparation.seen(spec)
    like = jax.eval_shape(lambda: module.export(config, module.init(config, seen, jax.random.key(0))))
    return config, spec, preparation, like


def fingerprint(identity: Mapping[str, Any], *arrays: Mapping[str, np.ndarray]) -> str:
    """Hash of all that acts: method, config and preparation (`describe`), weights and what is kept of data."""
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode())
    for columns in arrays:
        digest.update(storage.checksum(columns).encode())
    return digest.hexdigest()[:32]
