"""Presets: one place a value, and `hilp preset`, which says where each comes from."""

from __future__ import annotations

import json

import pytest

from hilp import presets
from hilp.cli import main
from hilp.errors import HilpError
from hilp.learning import methods, tables

TABLES = {name: methods.presets(name) for name in methods.names()}
TABLES["high level"] = methods.module(presets.HIGH_LEVEL).HIGH_LEVEL_PRESETS
TASKS = sorted({task for family in tables.FAMILIES.values() for task in family})


@pytest.mark.parametrize("name", TABLES)
def test_no_two_families_of_a_task_set_one_key_to_two_values(name: str) -> None:
    for size in presets.SIZES:
        for task in TASKS:
            found: dict[str, object] = {}
            for entry, values in presets.layers(TABLES[name], size, task):
                for key, value in values.items() if " " in entry else ():
                    assert found.setdefault(key, value) == value, f"{size} {task}: {key} by {entry}"


@pytest.mark.parametrize("name", methods.names())
def test_entries_are_of_known_sizes_and_families_and_of_keys_of_the_method(name: str) -> None:
    for entry, values in TABLES[name].items():
        size, _, families = entry.partition(" ")
        assert size in ("both", *presets.SIZES)
        assert not families or set(families.split("+")) <= tables.FAMILIES.keys()
        assert values.keys() <= methods.keys(name) | {"steps"}


def test_values_come_from_the_default_the_size_or_the_family() -> None:
    assert presets.preset("hilp", "paper").config == methods.config("hilp")
    sources = presets.sources("hilp", "laptop", "antmaze-large-diverse")
    assert (sources["expectile"], sources["dim"], sources["lr"]) == ("default of hilp", "laptop", "laptop antmaze")
    assert sources["steps"] == "laptop antmaze" and sources["bank"] == "laptop"
    assert presets.sources("sf-lap", "paper")["features"] == "the name sf-lap"
    assert presets.sources("gc-iql", "paper", "pointmaze-giant-navigate")["discount"] == "both giant"
    with pytest.raises(HilpError, match="unknown preset 'desktop'"):
        presets.preset("hilp", "desktop")


def test_the_verb_prints_every_value_and_where_it_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preset", "hilp", "antmaze-large-diverse", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.keys() == methods.keys("hilp") | {"steps", "bank"}
    assert found["steps"] == {"value": 160_000, "from": "laptop antmaze"}
    assert main(["preset", "hilp", "gym:Pendulum-v1", "--preset", "paper"]) == 0
    text = capsys.readouterr().out
    assert "1000000" in text and "no values of its own for the task 'gym:Pendulum-v1'" in text
    assert main(["preset", "hlip"]) == 2
    assert "did you mean 'hilp'" in capsys.readouterr().err
    assert main(["preset", "hilp", "antmaze-large-divrese"]) == 2
    assert "unknown task 'antmaze-large-divrese': did you mean 'antmaze-large-diverse'?" in capsys.readouterr().err
