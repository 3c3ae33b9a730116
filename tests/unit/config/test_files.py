"""TOML in and out, strict reading, and the hash of a configuration."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.config import RunConfig, config_hash, merged, read_toml, to_toml
from paceline.config.files import parse_options, parse_value
from paceline.config.study import StudyConfig
from paceline.errors import ConfigError

KEYS = st.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True)
SCALARS = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
)
TABLES = st.dictionaries(KEYS, SCALARS | st.lists(SCALARS, max_size=3), max_size=4)


@given(st.dictionaries(KEYS, SCALARS | st.lists(SCALARS, max_size=3) | TABLES, max_size=6))
def test_what_is_written_reads_back(values):
    kept = {k: v for k, v in values.items() if v != {}}
    assert tomllib.loads(to_toml(values)) == kept


def test_tables_inside_a_table_read_back():
    values = {"name": "x", "run": {"lr": 0.1, "model_options": {"dropout": 0.0}, "data_options": {}}}
    del values["run"]["data_options"]
    assert tomllib.loads(to_toml(values)) == values


def test_a_whole_configuration_reads_back():
    config = RunConfig(ranks=3, global_batch=30, lr=1e-5, model_options={"dropout": 0.0}, augment="shift:2")
    assert merged(RunConfig, tomllib.loads(to_toml(config.as_dict()))).as_dict() == config.as_dict()
    study = StudyConfig(ranks=(1, 4), targets=(0.9,), run={"lr": 0.1, "model_options": {"dropout": 0.0}})
    assert merged(StudyConfig, tomllib.loads(to_toml(study.as_dict()))).as_dict() == study.as_dict()


def test_later_layers_win():
    assert merged(RunConfig, {"lr": 0.1, "seed": 3}, {"lr": 0.2}).lr == 0.2


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"learning_rate": 0.1}, "unknown key 'learning_rate'"),
        ({"weight-decay": 0.1}, "did you mean 'weight_decay'?"),
        ({"ranks": "2"}, "ranks = '2' must be a whole number"),
        ({"ranks": 2.0}, "must be a whole number"),
        ({"ranks": True}, "ranks = True must be a whole number"),
        ({"lr": "fast"}, "must be a number"),
        ({"nesterov": 1}, "must be true or false"),
        ({"model": 3}, "must be text"),
        ({"model_options": 3}, "must be a table"),
    ],
)
def test_wrong_keys_and_types_are_one_line(values, expected):
    with pytest.raises(ConfigError) as caught:
        merged(RunConfig, values, source="my.toml")
    assert expected in str(caught.value)
    assert str(caught.value).startswith("my.toml: ")
    assert "\n" not in str(caught.value)


def test_a_whole_number_does_for_a_number_but_lists_are_typed():
    assert merged(RunConfig, {"lr": 1}).lr == 1.0
    assert merged(StudyConfig, {"ranks": [1, 2]}).ranks == (1, 2)
    with pytest.raises(ConfigError, match="ranks = 'x' must be a whole number"):
        merged(StudyConfig, {"ranks": [1, "x"]})
    with pytest.raises(ConfigError, match="must be a list"):
        merged(StudyConfig, {"ranks": 3})


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"ranks = ", "is not valid TOML"),
        (b"\xff\xfe", "cannot be read as text"),
        (None, "no configuration file"),
    ],
)
def test_unreadable_files_are_one_line_with_their_name(tmp_path, content, expected):
    path = tmp_path / "my.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=expected) as caught:
        read_toml(path)
    assert "my.toml" in str(caught.value)


def test_options_words():
    assert parse_options("dropout=0.2,hidden=64, name=relu,shape=[1, 28, 28],flag=true") == {
        "dropout": 0.2,
        "hidden": 64,
        "name": "relu",
        "shape": [1, 28, 28],
        "flag": True,
    }
    assert parse_options("") == {}
    assert parse_value("a b") == "a b"
    with pytest.raises(ConfigError, match="is not key=value"):
        parse_options("dropout")


@given(st.text(max_size=30))
def test_any_text_is_options_or_one_line(text):
    try:
        parse_options(text)
    except ConfigError as error:
        assert "\n" not in str(error).replace(repr(text), "")


def test_the_hash_tells_what_decides_a_run():
    base = RunConfig().as_dict()
    assert config_hash(base) == config_hash(RunConfig(out="elsewhere", deadline=5.0).as_dict())
    different = [RunConfig(seed=1), RunConfig(lr=0.051), RunConfig(model_options={"dropout": 0.1})]
    assert len({config_hash(c.as_dict()) for c in different} | {config_hash(base)}) == 4
