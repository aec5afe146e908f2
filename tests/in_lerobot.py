"""What LeRobot makes of data and policies of hilp: run by tests/test_lerobot.py, by an interpreter that has LeRobot."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lerobot.datasets.lerobot_dataset import LeRobotDataset


def write_sample(folder: Path, out: Path) -> dict[str, Any]:
    """Data in LeRobot's own writing, of the features and rows of `out` (an npz file)."""
    rows = np.load(out)
    state, camera = rows["observation.state"], rows["observation.images.camera"]
    features = {
        "observation.images.camera": {
            "dtype": "image",
            "shape": camera.shape[1:],
            "names": ["height", "width", "channels"],
        },
        "observation.state": {"dtype": "float32", "shape": state.shape[1:], "names": None},
        "action": {"dtype": "float32", "shape": rows["action"].shape[1:], "names": None},
        "next.reward": {"dtype": "float64", "shape": (1,), "names": None},
        "next.done": {"dtype": "bool", "shape": (1,), "names": None},
        "force": {"dtype": "float64", "shape": rows["force"].shape[1:], "names": None},
    }
    data = LeRobotDataset.create("hilp/sample", fps=20, root=folder, features=features, use_videos=False)
    for episode in np.unique(rows["episode"]):
        for row in np.flatnonzero(rows["episode"] == episode):
            data.add_frame({name: np.atleast_1d(rows[name][row]) for name in features} | {"task": "unlabeled"})
        data.save_episode()
    data.finalize()
    return {}


def read_data(folder: Path, out: Path) -> dict[str, Any]:
    """Every row as LeRobot reads it into `out`, and what it knows of the data."""
    data = LeRobotDataset("hilp/test", root=folder, delta_timestamps={"action": [0.0, 1 / 20]})
    rows = [data[number] for number in range(data.num_frames)]
    np.savez(out, **{key: np.stack([row[key].numpy() for row in rows]) for key in rows[0] if key != "task"})
    spans = [[row["dataset_from_index"], row["dataset_to_index"]] for row in data.meta.episodes]
    tasks = sorted({row["task"] for row in rows})
    return {"fps": data.fps, "spans": spans, "tasks": tasks, "stats": sorted(data.meta.stats)}


def act(run: Path, out: Path) -> dict[str, Any]:
    """Actions of a policy that LeRobot's factory makes, saves, and loads again; `out` has what is asked and seen."""
    from lerobot.configs.policies import PreTrainedConfig
    from lerobot.policies.factory import get_policy_class, make_policy, make_policy_config, make_pre_post_processors
    from lerobot.utils.import_utils import register_third_party_plugins

    register_third_party_plugins()  # as LeRobot's commands begin
    asked = json.loads(out.with_suffix(".json").read_text())
    observations = np.load(out)["observations"]
    data = LeRobotDataset("hilp/test", root=asked["data"])
    config = make_policy_config("hilp", policy_path=str(run), prompt=asked["prompt"], device="cpu")
    made = make_policy(config, ds_meta=data.meta)
    made.save_pretrained(asked["saved"])
    loaded_config = PreTrainedConfig.from_pretrained(asked["saved"])
    loaded = get_policy_class("hilp").from_pretrained(asked["saved"])
    found = {}
    for name, policy in {"made": made, "loaded": loaded}.items():
        place = asked["saved"] if name == "loaded" else None
        before, after = make_pre_post_processors(policy.config, pretrained_path=place)
        for episode in ("first", "second"):
            policy.reset()
            seen = [before({"observation.state": torch.from_numpy(row), "task": ""}) for row in observations]
            found[f"{name} {episode}"] = torch.cat([after(policy.select_action(one)) for one in seen]).numpy()
    chunk = loaded.predict_action_chunk(before({"observation.state": torch.from_numpy(observations[0])}))
    by_task = make_policy(make_policy_config("hilp", policy_path=str(run), device="cpu"), ds_meta=data.meta)
    seen = before({"observation.state": torch.from_numpy(observations[0]), "task": asked["prompt"]})
    found["by task"] = by_task.select_action(seen).numpy()
    np.savez(out, **found)
    return {"type": loaded_config.type, "chunk": list(chunk.shape), "refused": _refused(made, by_task, config, before)}


def see(run: Path, out: Path) -> dict[str, Any]:
    """Actions of a policy that sees pictures, under a prompt that was saved beside `out`."""
    from lerobot.policies.factory import get_policy_class, make_policy_config
    from lerobot.utils.import_utils import register_third_party_plugins

    register_third_party_plugins()
    pictures = torch.from_numpy(np.load(out)["pictures"]).permute(0, 3, 1, 2)
    # Every other one from 0 to 1, as LeRobot's data and commands have them, the rest as bytes, as its robots do.
    pictures = [one.to(torch.float32) / 255 if number % 2 else one for number, one in enumerate(pictures)]
    prompt = str(out.with_name("go.safetensors"))
    policy = get_policy_class("hilp")(make_policy_config("hilp", policy_path=str(run), prompt=prompt, device="cpu"))
    actions = torch.cat([policy.select_action({"observation.images.pixels": one[None]}) for one in pictures])
    np.savez(out, actions=actions.numpy())
    return {name: list(feature.shape) for name, feature in policy.config.input_features.items()}


def _refused(made: Any, without: Any, config: Any, before: Any) -> list[str]:
    """What is said of mistakes, a line each."""
    from lerobot.policies.factory import make_policy_config

    some = before({"observation.state": torch.zeros(2), "task": ""})
    said = []
    for mistake in (
        lambda: made.forward({}),
        lambda: made.get_optim_params(),
        lambda: config.get_optimizer_preset(),
        lambda: without.select_action(some),
        lambda: made.select_action({"observation.images.a": some["observation.state"]}),
        lambda: type(made)(make_policy_config("hilp", policy_path=config.policy_path, prompt="{", device="cpu")),
        lambda: type(made)(make_policy_config("hilp", policy_path="nowhere", device="cpu")),
    ):
        try:
            mistake()
            said.append("nothing")
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")
    return said


if __name__ == "__main__":
    verb, folder, out = sys.argv[1:]
    print(json.dumps({"write": write_sample, "read": read_data, "act": act, "see": see}[verb](Path(folder), Path(out))))
