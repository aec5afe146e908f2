"""A policy of hilp that acts where LeRobot's own would."""

import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lerobot.configs.policies import PreTrainedConfig
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.policies.pretrained import PreTrainedPolicy
from lerobot.utils.constants import ACTION, OBS_STATE

import hilp
from hilp.data.transforms import Recent
from hilp.errors import HilpError
from hilp.prompts import specs
from lerobot_policy_hilp.configuration_hilp import NO_TRAINING, HilpConfig
from lerobot_policy_hilp.processor_hilp import make_hilp_pre_post_processors

SAVED = "policy"  # the folder of the policy in one that LeRobot loads


class HilpPolicy(PreTrainedPolicy):
    """Acts under the prompt of its config, or under those that come as tasks."""

    config_class = HilpConfig
    name = "hilp"

    def __init__(self, config: HilpConfig, **_: Any):
        super().__init__(config)
        self._policy = hilp.FoundationPolicy.load(_policy_folder(config))
        self._sources = _sources(self._policy)
        self._fit_features()
        self._prompts: dict[str, Any] = {}  # by their text
        if config.prompt:
            self._prompt(config.prompt)  # what is wrong with it is told now, not on the robot
        self.reset()

    def reset(self) -> None:
        """A new episode: prompts forget what they remember of agents, films begin anew."""
        self._recent: dict[str, Recent] = {}
        for prompt in self._prompts.values():
            prompt.reset()

    @torch.no_grad()
    def select_action(self, batch: dict[str, Any], **_: Any) -> torch.Tensor:
        """The actions [n, action] of n robots that ask step by step, in the units of the data."""
        texts = self.config.prompt or batch.get("task")
        texts = {texts} if isinstance(texts, str | None) else set(texts)
        if len(texts) != 1 or not (text := texts.pop()):
            raise HilpError(
                "say what the policy shall do, the same for all robots: config.prompt, or the task of the observation, "
                "a prompt's spec as JSON or a file of a saved prompt"
            )
        prompt = self._prompt(text)
        seen = {name: self._seen(name, batch) for name in self._sources}
        if not self._policy.spec.parts:
            seen = np.concatenate([part.reshape(len(part), -1) for part in seen.values()], axis=1)
        actions = self._policy.act(seen, prompt)
        device = next(batch[key] for key in self._sources.values()).device
        return torch.from_numpy(np.ascontiguousarray(actions, np.float32)).to(device)

    def predict_action_chunk(self, batch: dict[str, Any], **_: Any) -> torch.Tensor:
        """The same as chunks of one action [n, 1, action]: a prompt looks at every step."""
        return self.select_action(batch)[:, None]

    def forward(self, batch: Any) -> Any:
        raise NotImplementedError(NO_TRAINING)

    def get_optim_params(self) -> Any:
        raise NotImplementedError(NO_TRAINING)

    @classmethod
    def from_pretrained(
        cls, pretrained_name_or_path: str | Path, *, config: Any = None, revision: str | None = None, **options: Any
    ) -> "HilpPolicy":
        """What `save_pretrained` wrote, from a folder or from the Hub."""
        folder = Path(pretrained_name_or_path)
        if not folder.is_dir():
            from huggingface_hub import snapshot_download

            folder = Path(snapshot_download(str(pretrained_name_or_path), revision=revision))
        config = PreTrainedConfig.from_pretrained(folder) if config is None else config
        config.pretrained_path = folder
        policy = cls(config)
        policy.eval()
        return policy

    def _save_pretrained(self, save_directory: Path, state_dict: Any = None) -> None:
        """All that acting takes, in one folder: config, processors, the policy and a prompt that is a file."""
        self._policy.save(save_directory / SAVED)
        kept = self.config.policy_path, self.config.prompt, self.config.pretrained_path
        try:
            self.config.policy_path, self.config.pretrained_path = SAVED, None
            if self.config.prompt and not _is_spec(self.config.prompt):
                saved = shutil.copy(_place(self.config, self.config.prompt), save_directory)
                self.config.prompt = Path(saved).name
            self.config._save_pretrained(save_directory)
        finally:
            self.config.policy_path, self.config.prompt, self.config.pretrained_path = kept
        for processor in make_hilp_pre_post_processors(self.config):
            processor.save_pretrained(save_directory)

    def _prompt(self, text: str) -> Any:
        if text not in self._prompts:
            if _is_spec(text):
                made = self._policy.prompt(specs.from_json(_json(text)))
            else:
                made = self._policy.load_prompt(_place(self.config, text))
            self._prompts = {text: made}  # another one begins anew
        return self._prompts[text]

    def _seen(self, name: str, batch: Mapping[str, Any]) -> np.ndarray:
        """A part of the observation as the data had it: pictures as bytes, channels last, with those before them."""
        key = self._sources[name]
        if key not in batch:
            raise HilpError(f"this policy looks at '{key}', which the observation has not: it has {sorted(batch)}")
        rows = batch[key].detach().cpu().numpy()
        shape = self._policy.spec.pictures.get(name)
        if shape is None:
            return rows.astype(np.float32)
        rows = rows if rows.dtype == np.uint8 else np.rint(rows * 255).astype(np.uint8)
        rows = np.moveaxis(rows, -3, -1)
        frames = shape[2] // rows.shape[-1]
        return self._recent.setdefault(name, Recent(frames)).add(rows) if frames > 1 else rows

    def _fit_features(self) -> None:
        """What LeRobot says that there is must hold what the policy looks at; where it says nothing, that is said."""
        wanted, config = _features(self._policy, self._sources), self.config
        config.input_features = config.input_features or wanted
        acted = (self._policy.spec.action_dim,)
        config.output_features = config.output_features or {ACTION: PolicyFeature(FeatureType.ACTION, acted)}
        for key, feature in {**wanted, ACTION: PolicyFeature(FeatureType.ACTION, acted)}.items():
            given = {**config.input_features, **config.output_features}.get(key)
            if given is None:
                raise HilpError(f"this policy looks at '{key}', which is not among {sorted(config.input_features)}")
            fits = tuple(given.shape) == feature.shape
            if feature.type is FeatureType.VISUAL:  # stacks are made of the last few pictures
                fits = tuple(given.shape[1:]) == feature.shape[1:] and feature.shape[0] % given.shape[0] == 0
            if not fits:
                raise HilpError(f"'{key}' is {tuple(given.shape)} here, and {feature.shape} for this policy")


def _policy_folder(config: HilpConfig) -> Path:
    """The folder of the policy, beside the config that names it or where the name leads."""
    return _place(config, config.policy_path)


def _place(config: HilpConfig, name: str) -> Path:
    beside = None if config.pretrained_path is None else Path(config.pretrained_path) / name
    return beside if beside is not None and beside.exists() else Path(name)


def _is_spec(text: str) -> bool:
    return text.lstrip().startswith("{")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise HilpError(f"a prompt is a spec as JSON or a file, and this is no JSON ({error}): {text:.60}") from error


def _sources(policy: Any) -> dict[str, str]:
    """The key of LeRobot's observation behind each part of the policy's own."""
    pictures = policy.spec.pictures
    parts = [name for name, _, _ in policy.spec.parts] or [name for name, _ in policy.observation_parts]
    if not policy.spec.parts and not (parts and all(name.startswith("observation.") for name in parts)):
        return {"": OBS_STATE}  # columns of a log, side by side
    vectors = [name for name in parts if name not in pictures]
    found = {}
    for name in parts:
        plain = name.removeprefix("observation.")
        if name in pictures:
            found[name] = f"observation.images.{plain.removeprefix('images.')}"
        else:
            found[name] = name if plain != name else OBS_STATE if len(vectors) == 1 else f"observation.{name}"
    return found


def _features(policy: Any, sources: Mapping[str, str]) -> dict[str, PolicyFeature]:
    """The same as LeRobot describes them: pictures with channels first."""
    shapes = {name: shape for name, shape, _ in policy.spec.parts} or dict(policy.observation_parts)
    shapes = {**shapes, "": (policy.spec.observation_dim,)}
    found = {}
    for name, key in sources.items():
        if name in policy.spec.pictures:
            high, wide, channels = policy.spec.pictures[name]
            found[key] = PolicyFeature(FeatureType.VISUAL, (channels, high, wide))
        else:
            found[key] = PolicyFeature(FeatureType.STATE, (math.prod(shapes[name]),))
    return found
