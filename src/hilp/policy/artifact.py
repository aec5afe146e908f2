"""A policy's folder: config.json, weights and the bank. docs/formats.md describes both versions of it.

Folders appear whole: they are written beside their target and then take its name, so a kill at any instant leaves the
old policy or the new one. Nothing in a folder is believed: sizes are held against what the files hold before anything
is built from them, and loading runs no code.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from hilp import runs, storage
from hilp.data.dataset import Parts
from hilp.errors import HilpError
from hilp.learning import methods
from hilp.policy.bank import Bank
from hilp.policy.forks import require_own_process
from hilp.policy.graph import Graph
from hilp.policy.latent_bank import LatentBank
from hilp.policy.preparation import Preparation
from hilp.policy.provenance import Provenance
from hilp.runs import CONFIG
from hilp.spec import Spec
from hilp.versions import versions

FORMAT = "hilp-policy"
VERSION = 4  # 1: the fingerprint does not cover the bank; 2: there is no graph of the data; 3: no latent bank
WEIGHTS, BANK, GRAPH, LATENTS = (f"{name}.safetensors" for name in ("weights", "bank", "graph", "latents"))
IDENTITY = ("method", "config", "spec", "preparation")  # what the fingerprint covers beside the arrays
SHOWN = 200  # characters of somebody else's error
DAMAGE = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)


@dataclass(frozen=True)
class Contents:
    """All that a policy's folder holds."""

    config: Any
    spec: Spec
    core: Any  # the method's export
    preparation: Preparation
    bank: Bank
    provenance: Provenance
    observation_parts: Parts = ()  # named parts of one flat vector
    graph: Graph | None = None  # of the data that it was trained on; methods without distances have none
    latent_bank: LatentBank | None = None  # of policies that see pictures, where the bank cannot hold all transitions
    version: int = VERSION

    def identity(self) -> dict[str, Any]:
        return {
            "method": methods.name_of(self.config),
            "config": methods.config_values(self.config),
            "spec": self.spec.to_json(),
            "preparation": self.preparation.to_json(),
        }

    def fingerprint(self) -> str:
        """Hash of all that acts: method, config, preparation, weights and, from version 2 on, what is kept of data."""
        kept = [self.bank.columns()] if self.version > 1 else []
        kept += [part.columns() for part in (self.graph, self.latent_bank) if part is not None]
        return _fingerprint(self.identity(), storage.flatten(self.core), *kept)


def save(contents: Contents, path: str | os.PathLike[str]) -> Path:
    """Write the folder; a policy that was there is replaced in one step, other files in it stay."""
    folder = Path(path)
    try:
        if folder.exists() and not folder.is_dir():
            raise HilpError(f"cannot write {folder}: it is a file")
        if folder.exists() and Path.cwd().is_relative_to(folder.resolve()):  # swapped, it would be gone under our feet
            if (folder / CONFIG).exists():
                raise HilpError(f"cannot replace the policy in {folder} from inside it: save from another folder")
            _write(contents, folder)
            return folder
        storage.clean_leftovers(folder)
        temporary = storage.temporary_beside(folder)
        try:
            temporary.mkdir(parents=True)
            _write(contents, temporary)
            if folder.exists():
                storage.carry_over(folder, temporary)
                shutil.copymode(folder, temporary)  # a folder that is shared stays so
            storage.swap_folder(temporary, folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise HilpError(f"cannot write {folder}: {getattr(error, 'strerror', None) or error}") from error
    return folder


def _write(contents: Contents, folder: Path) -> None:
    """config.json comes last: a folder without one is no policy."""
    storage.write_arrays(folder / WEIGHTS, storage.flatten(contents.core))
    storage.write_arrays(folder / BANK, contents.bank.columns())
    if contents.graph is not None:
        storage.write_arrays(folder / GRAPH, contents.graph.columns())
    if contents.latent_bank is not None:
        storage.write_arrays(folder / LATENTS, contents.latent_bank.columns())
    description = {
        "format": FORMAT,
        "version": contents.version,
        **contents.identity(),
        "fingerprint": contents.fingerprint(),
        "observation_parts": [[name, list(shape)] for name, shape in contents.observation_parts],
        "graph": contents.graph is not None,
        **({} if contents.latent_bank is None else {"latents": True}),
        "origin": {"versions": versions(), **contents.provenance.to_json()},
    }
    storage.write_json(folder / CONFIG, description)


def load(path: str | os.PathLike[str]) -> Contents:
    """What a policy's folder holds, or that of the run that trained it."""
    require_own_process()
    folder = runs.find(Path(path))
    description = storage.read_json(folder / CONFIG)
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise HilpError(f"{folder / CONFIG} is not the config of a hilp policy")
    version = description.get("version")
    if type(version) is not int or not 1 <= version <= VERSION:
        raise HilpError(f"{folder} has format version {version}, this hilp reads 1 to {VERSION}: update hilp")
    lacking = [key for key in (*IDENTITY, "fingerprint", "origin") if key not in description]
    if lacking:
        raise HilpError(f"{folder / CONFIG} is incomplete (no '{lacking[0]}'): restore it from a copy")
    weights, _ = storage.read_arrays(folder / WEIGHTS)
    columns, _ = storage.read_arrays(folder / BANK)
    # Said in config.json, because the file of a policy that was here before may still lie in the folder.
    graph_columns = storage.read_arrays(folder / GRAPH)[0] if description.get("graph") else None
    latent_columns = storage.read_arrays(folder / LATENTS)[0] if description.get("latents") else None
    # Before anything is built from the config, which would fail in its own way on a changed value.
    identity = {key: description[key] for key in IDENTITY}
    try:
        kept = [columns] if version > 1 else []
        kept += [part for part in (graph_columns, latent_columns) if part is not None]
        found = _fingerprint(identity, weights, *kept)
    except RecursionError:
        raise HilpError(f"{folder / CONFIG} is damaged (it is nested too deep): restore it from a copy") from None
    if found != description["fingerprint"]:
        files = (CONFIG, WEIGHTS, BANK, *([GRAPH] if version > 2 else []), *([LATENTS] if latent_columns else []))
        named = f"{', '.join(files[:-1])} or {files[-1]}"
        raise HilpError(f"{folder}: {named} was changed (fingerprints differ): restore a copy")
    if description["method"] not in methods.names():
        raise HilpError(
            f"{folder} is a policy of the method '{description['method']}', which is not installed here: install the "
            "package that it comes with"
        )
    try:
        config, spec, preparation, like = parse_description(description, weights)
        provenance = Provenance.from_json(dict(description["origin"]))
        parts = tuple((str(n), tuple(map(int, shape))) for n, shape in description.get("observation_parts", []))
    except (*DAMAGE, HilpError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0][:SHOWN]
        raise HilpError(f"{folder / CONFIG} does not describe a policy ({why}): restore a copy") from error
    core = storage.unflatten(like, weights, folder / WEIGHTS)
    try:
        bank = Bank.from_columns(columns, spec)
    except DAMAGE as error:
        raise HilpError(f"{folder / BANK} is not the bank of this policy: restore it from a copy") from error
    try:
        latents = None if latent_columns is None else LatentBank.from_columns(latent_columns, spec)
    except DAMAGE as error:
        raise HilpError(f"{folder / LATENTS} does not fit this policy: restore it from a copy") from error
    try:
        graph = None if graph_columns is None else Graph.from_columns(graph_columns, len(latents or bank))
    except DAMAGE as error:
        raise HilpError(f"{folder / GRAPH} is not the graph of this policy: restore it from a copy") from error
    return Contents(config, spec, core, preparation, bank, provenance, parts, graph, latents, version)


def parse_description(
    description: Mapping[str, Any], weights: Mapping[str, np.ndarray]
) -> tuple[Any, Spec, Preparation, Any]:
    """Config, spec, preparation and the shapes of the weights, as config.json (or the note of a prompt) says.

    Shapes are found without computing: a config that asks for terabytes is known by them not to fit its file.
    """
    values = description["config"]
    if any(isinstance(value, list) and len(value) > len(weights) for value in values.values()):
        raise ValueError(f"more layers than the {len(weights)} arrays of {WEIGHTS}")
    config = methods.from_values(description["method"], values)
    module = methods.of(config)
    spec = Spec.from_json(description["spec"])
    preparation = Preparation.from_json(description["preparation"], spec)
    seen = preparation.seen(spec)
    like = jax.eval_shape(lambda: module.export(config, module.init(config, seen, jax.random.key(0))))
    return config, spec, preparation, like


def _fingerprint(identity: Mapping[str, Any], *arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode())
    for columns in arrays:
        digest.update(storage.checksum(columns).encode())
    return digest.hexdigest()[:32]
