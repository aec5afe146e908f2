"""Policies on the Hub: Hugging Face's own client against a server here that speaks the Hub's endpoints."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hilp
from conftest import Run
from hilp import runs
from hilp.errors import HilpError
from hilp.policy import artifact
from hub_server import Hub, Repo

client = pytest.importorskip("huggingface_hub", reason="pip install 'hilp[hub]'")
settings = importlib.import_module("huggingface_hub.constants")
FILES = {"config.json", "weights.safetensors", "bank.safetensors", "graph.safetensors"}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A Hub of one's own, on which one is logged in as ann. Its client reads its settings when it is imported."""
    server, home = Hub(), tmp_path_factory.mktemp("hub")
    for name, value in {
        "HF_ENDPOINT": server.address, "HF_HOME": str(home), "HF_HUB_CACHE": str(home / "hub"), "HF_TOKEN": "hf_ann",
        "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_OFFLINE": "0",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
    importlib.reload(settings)
    yield server
    server.close()
    monkeypatch.undo()
    importlib.reload(settings)


@pytest.fixture
def pushed(hub: Hub, tiny_run: Path, run: Run) -> Repo:
    """What a push of the tiny run leaves on the Hub."""
    code, out, err = run("push", tiny_run, "ann/maze", "--private", "--license", "mit", "--json")
    assert code == 0, err
    assert json.loads(out)["revision"] == hub.repos["ann/maze"].head
    return hub.repos["ann/maze"]


def spoil(repo: Repo, **files: bytes | None) -> None:
    """A commit that changes files; None takes one away."""
    names = {name.replace("__", "."): content for name, content in files.items()}
    kept = {**repo.commits[repo.head], **names}
    repo.commit({name: content for name, content in kept.items() if content is not None})


def test_a_policy_comes_back_as_it_went(
    pushed: Repo, hub: Hub, tiny: hilp.FoundationPolicy, tiny_run: Path, run: Run, in_empty: Path
) -> None:
    assert pushed.private
    assert set(pushed.commits[pushed.head]) == {*FILES, "README.md", ".gitattributes"}
    code, out, _ = run("pull", "ann/maze")
    assert code == 0 and "out: runs/maze" in out
    for name in FILES:
        assert (in_empty / "runs" / "maze" / name).read_bytes() == (tiny_run / "policy" / name).read_bytes()
    at, goal = tiny.bank.observations[:50], tiny.bank.observations[100]
    wanted = tiny.act(at, tiny.goal(goal, plan="auto"))
    for where in ("runs/maze", "hf://ann/maze", f"hf://ann/maze@{pushed.head}", "hf://ann/maze@main"):
        policy = hilp.FoundationPolicy.load(where)
        assert policy.fingerprint == tiny.fingerprint
        np.testing.assert_array_equal(policy.act(at, policy.goal(goal, plan="auto")), wanted)


@pytest.fixture
def in_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_verbs_take_what_is_on_the_hub(pushed: Repo, run: Run, in_empty: Path) -> None:
    code, out, err = run("evaluate", "hf://ann/maze", "--plan", 0, "--episodes", 3, "--json")
    assert code == 0, err
    row = json.loads(out)
    assert json.loads((in_empty / "runs" / "hf-ann-maze" / runs.ROWS).read_text())["policy"] == row["policy"]


def test_a_push_is_a_revision(
    pushed: Repo, run_copy: Path, tiny: hilp.FoundationPolicy, run: Run, in_empty: Path
) -> None:
    """Old files that the new policy lacks go; what its owner wrote around the card stays."""
    first = pushed.head
    card = pushed.commits[first]["README.md"].decode()
    spoil(pushed, README__md=card.replace("# maze", "# My maze\n\nSeen in the lab.").encode())
    other = replace(tiny, graph=None)
    other.save(run_copy / "policy")
    code, _, err = run("push", run_copy, "ann/maze")
    assert code == 0, err
    now = pushed.commits[pushed.head]
    assert "graph.safetensors" not in now
    assert "Seen in the lab." in now["README.md"].decode()
    assert other.fingerprint in now["README.md"].decode()
    assert hilp.FoundationPolicy.load("hf://ann/maze").fingerprint == other.fingerprint
    assert hilp.FoundationPolicy.load(f"hf://ann/maze@{first}").fingerprint != other.fingerprint
    pushed.tags["v1"] = first
    assert hilp.FoundationPolicy.load("hf://ann/maze@v1").fingerprint != other.fingerprint


@pytest.mark.slow  # JAX starts once more
def test_the_client_as_a_user_has_it(hub: Hub, tiny_run: Path, tmp_path: Path) -> None:
    """Settings from the environment, in a process of its own; the client's bars and lines are not in the way."""
    words = [sys.executable, "-c", "import sys; from hilp.cli import main; sys.exit(main())"]
    done = subprocess.run(
        [*words, "push", str(tiny_run), "ann/maze", "--public"],
        cwd=tmp_path, env={**os.environ}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert f"{hub.address}/ann/maze" in done.stdout and "for all to see" in done.stdout
    assert not hub.repos["ann/maze"].private


# ---- cards -----------------------------------------------------------------------------------------------------------


def test_a_card_says_what_the_run_knows(pushed: Repo, run_copy: Path, run: Run, in_empty: Path) -> None:
    assert run("evaluate", run_copy, "--plan", 0, 3, "--episodes", 4)[0] == 0
    code, out, err = run("push", run_copy, "ann/maze", "--dry-run", "--license", "mit", "--datasets", "ann/walks")
    assert code == 0, err
    head = client.ModelCard(out).data
    assert (head.library_name, head.pipeline_tag, head.license) == ("hilp", "robotics", "mit")
    assert head.datasets == ["ann/walks"] and {"hilp", "maze-medium"} <= {*head.tags}
    assert "| goal, plan 0 |" in out and "| goal, plan 3 |" in out and "Made by `hilp" in out
    assert "2,000 transitions" in out, "whoever publishes a policy publishes a part of the data"
    assert len(pushed.commits) == 2, "nothing was pushed"
    code_blocks = dict(re.findall(r"```(\w*)\n(.*?)```", out, re.S))
    names: dict[str, object] = {}
    exec(code_blocks["python"], names)
    assert np.shape(names["action"]) == (2,)
    prompt = next(line for line in code_blocks[""].splitlines() if line.startswith("hilp prompt"))
    assert run(*prompt.split()[1:])[0] == 0


def test_names_from_anywhere_stay_in_their_place(tiny: hilp.FoundationPolicy) -> None:
    from hilp.report import card

    odd = replace(tiny, provenance=replace(tiny.provenance, data="a|b`\n# c", task='x: "y"\n---'))
    text = card.write(odd, "maze", "hf://ann/maze")
    assert "\n# c" not in text and text.count("\n---\n") == 1
    assert 'x: "y"\n---' in client.ModelCard(text).data.tags


# ---- strangers -------------------------------------------------------------------------------------------------------


def test_only_files_of_a_policy_are_taken(pushed: Repo, hub: Hub, run: Run, in_empty: Path) -> None:
    spoil(pushed, evil__py=b"raise SystemExit", pytorch_model__bin=b"\x80\x04.", **{"../out__txt": b"out"})
    hub.asked.clear()
    hilp.FoundationPolicy.load("hf://ann/maze")
    assert run("pull", "ann/maze")[0] == 0
    assert {path.name for path in (in_empty / "runs" / "maze").iterdir()} == {*FILES, "README.md"}
    assert not [line for line in hub.asked if re.search("evil|pytorch|out.txt", line)]


HOSTILE: dict[str, tuple[dict[str, bytes | None], str]] = {
    "no config": ({"config__json": None}, "holds no hilp policy: it has no config.json"),
    "another library's": ({"config__json": b'{"model_type": "act"}'}, "not the config of a hilp policy"),
    "no JSON": ({"config__json": b"\x80\x04."}, "is damaged"),
    "weights of pickle": ({"weights__safetensors": b"\x80\x04\x95ctorch\nsave\n."}, "not a safetensors file"),
    "another bank": ({"bank__safetensors": None}, "holds no hilp policy: it has no bank.safetensors"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_repository_is_refused(kind: str, pushed: Repo, refused: Callable[..., str], in_empty: Path) -> None:
    files, said = HOSTILE[kind]
    spoil(pushed, **files)
    assert said in refused("pull", "ann/maze")
    with pytest.raises(HilpError, match=re.escape(said)):
        hilp.FoundationPolicy.load("hf://ann/maze")


def test_tampered_weights_are_refused(pushed: Repo, refused: Callable[..., str], in_empty: Path) -> None:
    weights = bytearray(pushed.commits[pushed.head]["weights.safetensors"])
    weights[-100] ^= 1
    spoil(pushed, weights__safetensors=bytes(weights))
    assert "hf://ann/maze is not taken: " in refused("pull", "ann/maze")
    with pytest.raises(HilpError, match="checksum is another"):
        hilp.FoundationPolicy.load("hf://ann/maze")


def test_what_is_too_large_is_not_downloaded(
    pushed: Repo, hub: Hub, refused: Callable[..., str], in_empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.claims["weights.safetensors"] = 3 << 40
    hub.asked.clear()
    assert "weights.safetensors has 3072.0 GiB, at most 2.0 GiB" in refused("pull", "ann/maze")
    hub.claims.clear()
    spoil(pushed, config__json=b" " * (5 << 20))
    assert "config.json has 5.0 MiB, at most 4.0 MiB" in refused("pull", "ann/maze")
    assert not [line for line in hub.asked if "resolve" in line]
    hub.claims["config.json"] = 100  # a listing that lies
    assert "config.json has 5.0 MiB, at most 4.0 MiB" in refused("pull", "ann/maze")


# ---- mistakes --------------------------------------------------------------------------------------------------------


def test_mistakes_before_anything_is_asked(tiny_run: Path, refused: Callable[..., str], hub: Hub) -> None:
    assert "write user/name" in refused("pull", "maze")
    assert "write user/name" in refused("push", tiny_run, "ann/maze/x", "--public")
    assert "one of both" in refused("push", tiny_run, "ann/maze", "--public", "--private")
    assert "leave out @v1" in refused("push", tiny_run, "ann/maze@v1", "--public")
    assert "such as mit" in refused("push", tiny_run, "ann/maze", "--public", "--license", "My own")
    assert "no such folder" in refused("push", "runs/nothing", "ann/maze", "--public")
    with pytest.raises(HilpError, match="names nothing on the Hub"):
        hilp.FoundationPolicy.load("hf://ann")
    assert hub.asked == []


def test_who_may_push(hub: Hub, tiny_run: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--public, or for you alone, --private" in refused("push", tiny_run, "ann/maze")
    assert "needs the right to write" in refused("push", tiny_run, "bob/maze", "--public")
    monkeypatch.setenv("HF_TOKEN", "hf_old")
    assert "the Hub does not know who you are" in refused("push", tiny_run, "ann/maze", "--public")
    monkeypatch.delenv("HF_TOKEN")
    hub.asked.clear()
    assert "`hf auth login`, or set HF_TOKEN" in refused("push", tiny_run, "ann/maze", "--public")
    assert hub.asked == [] and hub.repos == {}


def test_a_name_that_is_taken(
    hub: Hub, pushed: Repo, tiny_run: Path, run: Run, refused: Callable[..., str], in_empty: Path
) -> None:
    assert "is private already" in refused("push", tiny_run, "ann/maze", "--public")
    hub.repos["ann/other"] = other = Repo()
    other.commit({".gitattributes": b"", "README.md": b"# mine", "pytorch_model.bin": b"x", "config.json": b"{}"})
    assert "taken by something else (pytorch_model.bin)" in refused("push", tiny_run, "ann/other")
    assert len(other.commits) == 1
    hub.repos["ann/empty"] = empty = Repo()
    empty.commit({".gitattributes": b"", "README.md": b"# to come"})
    assert run("push", tiny_run, "ann/empty")[0] == 0
    assert {*FILES} < set(empty.commits[empty.head])


def test_what_is_not_there_or_not_for_you(
    pushed: Repo, hub: Hub, refused: Callable[..., str], in_empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "there is none of this name, or it is private" in refused("pull", "ann/nothing")
    assert "it has no revision 'v9'" in refused("pull", "ann/maze@v9")
    monkeypatch.setenv("HF_TOKEN", "hf_bob")
    assert "there is none of this name, or it is private" in refused("pull", "ann/maze")
    pushed.private, pushed.gated = False, True
    assert "its owner grants access" in refused("prompt", "hf://ann/maze", "--skill", "random")
    monkeypatch.setenv("HF_TOKEN", "hf_ann")
    (in_empty / "runs" / "maze").mkdir(parents=True)
    assert "choose another --out" in refused("pull", "ann/maze")


def test_without_a_network(
    pushed: Repo, hub: Hub, run: Run, refused: Callable[..., str], in_empty: Path, tiny_run: Path
) -> None:
    """What was downloaded before still loads, and says so."""
    assert run("pull", "ann/maze")[0] == 0
    hub.close()
    code, _, err = run("pull", "ann/maze", "--overwrite")
    assert code == 0 and err == "hilp: the Hub cannot be reached: hf://ann/maze is what was downloaded last\n"
    assert "it was not downloaded before" in refused("pull", "ann/other")
    assert "cannot push to hf://ann/maze" in refused("push", tiny_run, "ann/maze")


def test_a_download_that_breaks_off(
    pushed: Repo, hub: Hub, run: Run, refused: Callable[..., str], in_empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client tries again a few times, a second apart; then no folder is there, and the next pull goes on."""
    monkeypatch.setattr("time.sleep", lambda _: None)
    hub.cut, hub.cuts = "bank", 100
    assert "cannot download hf://ann/maze: peer closed connection" in refused("pull", "ann/maze")
    hub.status = ("GET .*bank.*", 503)
    assert "cannot download hf://ann/maze" in refused("pull", "ann/maze")
    hub.cuts, hub.status = 2, None
    hub.asked.clear()
    code, _, err = run("pull", "ann/maze")
    assert code == 0, err
    fetched = [line for line in hub.asked if line.startswith("GET") and line.endswith(".safetensors")]
    assert {line.rpartition("/")[2] for line in fetched} == {"bank.safetensors"}, "the other files were here already"
    assert len(fetched) == 3


def test_a_push_that_breaks_off(pushed: Repo, hub: Hub, run_copy: Path, other: hilp.FoundationPolicy, run: Run) -> None:
    """What was there stays until all files are: they come in one commit."""
    before = pushed.head
    other.save(run_copy / "policy")
    hub.large.clear()
    hub.status = ("PUT /large/", 400)
    code, _, err = run("push", run_copy, "ann/maze")
    assert code == 2 and err.startswith("hilp: error: cannot push to hf://ann/maze: ") and err.count("\n") == 1
    assert pushed.head == before
    hub.status = None
    assert run("push", run_copy, "ann/maze")[0] == 0


def test_the_extra_is_not_installed(
    refused: Callable[..., str], tiny_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for words in (("pull", "ann/maze"), ("push", tiny_run, "ann/maze", "--public"), ("map", "hf://ann/maze")):
        assert "pip install 'hilp[hub]'" in refused(*words)


def test_only_files_that_a_policy_names_are_pushed(run_copy: Path) -> None:
    folder = run_copy / "policy"
    shutil.copy(folder / "bank.safetensors", folder / "latents.safetensors")  # of a policy that was here before
    (folder / "notes.txt").write_text("mine")
    assert set(artifact.files(folder)) == FILES
