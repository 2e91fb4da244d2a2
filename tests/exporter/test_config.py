"""The settings: one frozen object, checked when it is made, overridden by the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from lastgood.config import load, parse_policy
from lastgood.errors import ConfigError


def test_the_run_is_named_after_its_directory() -> None:
    config = load({}, run_dir="/shared/runs/Llama 7B")
    assert (config.run, config.run_dir) == ("llama-7b", "/shared/runs/Llama 7B")


def test_without_a_directory_both_come_from_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/home/me/train_gpt.py"])
    config = load({})
    assert (config.run, config.run_dir) == ("train_gpt", str(Path("runs") / "train_gpt"))


def test_the_environment_overrides_the_keyword() -> None:
    config = load({"LASTGOOD_REPLAY_EVERY": "7", "LASTGOOD_SAVE_PROBE": "off"}, run_dir="r", replay_every=100)
    assert (config.replay_every, config.save_probe) == (7, False)


@pytest.mark.parametrize(
    ("name", "value"),
    [("policy", 3), ("replica_every", "50"), ("replay_every", True), ("save_probe", 1), ("run", None)],
)
def test_a_value_of_another_type_is_one_clear_error(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{name}=.*expected a value of type"):
        load({}, **{"run_dir": "r", name: value})


def test_a_directory_that_cannot_name_a_run_says_what_to_pass() -> None:
    with pytest.raises(ConfigError, match="run="):
        load({}, run_dir="/runs/数据")


@pytest.mark.parametrize(
    ("variable", "value"),
    [("REPLAY_EVERY", "often"), ("SAVE_PROBE", "maybe"), ("REPLICA_EVERY", "-1"), ("POLICY", "explode")],
)
def test_a_bad_value_in_the_environment_is_one_clear_error(variable: str, value: str) -> None:
    with pytest.raises(ConfigError, match="expected"):
        load({f"LASTGOOD_{variable}": value}, run_dir="r")


def test_an_unknown_setting_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="unknown setting 'replay_evry': expected one of .*replay_every"):
        load({}, replay_evry=3)


def test_an_object_store_is_refused_with_a_way_out() -> None:
    with pytest.raises(ConfigError, match="s3://bucket/run.*POSIX path"):
        load({}, run_dir="s3://bucket/run")


def test_the_token_is_neither_shown_nor_journaled() -> None:
    config = load({"LASTGOOD_TOKEN": "secret-1"}, run_dir="r")
    assert "secret-1" not in repr(config)
    assert "secret-1" not in str(config.journaled())
    assert config.token == "secret-1"


def test_a_policy_is_a_word_a_mapping_or_a_list() -> None:
    assert set(parse_policy("skip").values()) == {"skip"}
    assert parse_policy({"replay": "record"})["replay"] == "record"
    mixed = parse_policy("record,finite=stop")
    assert (mixed["finite"], mixed["replica"]) == ("stop", "record")


def test_a_policy_for_an_unknown_check_names_the_checks() -> None:
    with pytest.raises(ConfigError, match="conservation"):
        parse_policy("nan=stop")
