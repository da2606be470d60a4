"""How `[plugins.NAME]` becomes a plugin's settings, and how its mistakes are reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest

from jobkit.config import Config
from jobkit.errors import ConfigError

SECRET = "hunter2-not-a-secret"


def load(
    folder: Path,
    text: str,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Config:
    (folder / "jobkit.toml").write_text(text, encoding="utf-8")
    return Config.load(environ=environ or {}, overrides=overrides, search_from=folder)


@dataclass(frozen=True)
class PrunerSettings:
    interval: timedelta = timedelta(seconds=60)
    batch: int = 1_000
    grace: timedelta | None = timedelta(days=1)
    dry: bool = False
    queues: tuple[str, ...] = ()
    mode: Literal["fast", "slow"] = "fast"
    ratio: float = 0.5
    folder: Path = Path(".")

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ValueError("batch must be at least 1")


class Mirror(msgspec.Struct, frozen=True, rename="kebab"):
    target_url: str
    retry_count: Annotated[int, msgspec.Meta(ge=0, le=9)] = 3
    pause: timedelta | None = None


def test_a_plugin_without_a_table_gets_its_defaults() -> None:
    assert Config().plugin("pruner", PrunerSettings) == PrunerSettings()


def test_without_a_type_a_plugins_values_are_given_as_found() -> None:
    assert dict(Config(plugins={"x": {"a": "5s"}}).plugin("x")) == {"a": "5s"}
    assert dict(Config().plugin("x")) == {}


def test_a_plugins_table_becomes_its_dataclass(tmp_path: Path) -> None:
    text = (
        '[plugins.pruner]\ninterval = "1m30s"\nbatch = 5\ngrace = "never"\ndry = true\nqueues = ["a", "b"]\n'
        'mode = "slow"\nratio = 1\nfolder = "/var"'
    )
    assert load(tmp_path, text).plugin("pruner", PrunerSettings) == PrunerSettings(
        timedelta(seconds=90), 5, None, True, ("a", "b"), "slow", 1.0, Path("/var")
    )


def test_a_plugins_table_becomes_its_struct_by_the_names_it_encodes(tmp_path: Path) -> None:
    text = '[plugins.mirror]\ntarget-url = "https://example.com"\nretry-count = 9\npause = "2s"'
    assert load(tmp_path, text).plugin("mirror", Mirror) == Mirror(
        "https://example.com", 9, timedelta(seconds=2)
    )


def test_every_plugin_setting_can_come_from_the_environment(tmp_path: Path) -> None:
    environ = {
        "JOBKIT_PLUGINS_PRUNER_INTERVAL": "5s",
        "JOBKIT_PLUGINS_PRUNER_BATCH": "7",
        "JOBKIT_PLUGINS_PRUNER_GRACE": "off",
        "JOBKIT_PLUGINS_PRUNER_DRY": "yes",
        "JOBKIT_PLUGINS_PRUNER_QUEUES": "a, b",
        "JOBKIT_PLUGINS_PRUNER_RATIO": "0.25",
    }
    config = load(tmp_path, '[plugins.pruner]\nbatch = 1\nmode = "slow"', environ)
    assert config.plugin("pruner", PrunerSettings) == PrunerSettings(
        timedelta(seconds=5), 7, None, True, ("a", "b"), "slow", 0.25
    )
    assert str(config.origin("plugins.pruner.batch")) == "environment JOBKIT_PLUGINS_PRUNER_BATCH"


def test_a_variable_finds_a_plugin_of_several_words_through_its_table(tmp_path: Path) -> None:
    text = "[plugins.acme]\nx = 1\n[plugins.acme-archive]\ny = 1"
    environ = {"JOBKIT_PLUGINS_ACME_ARCHIVE_BATCH": "7", "JOBKIT_REPLACE_ACME_ARCHIVE": "other"}
    config = load(tmp_path, text, environ)
    assert dict(config.plugins["acme-archive"]) == {"y": 1, "batch": "7"}
    assert dict(config.replace) == {"acme-archive": "other"}


def test_settings_of_one_plugin_merge_key_by_key(tmp_path: Path) -> None:
    config = load(
        tmp_path, "[plugins.pruner]\nbatch = 1\ndry = true", overrides={"plugins": {"pruner": {"batch": 2}}}
    )
    assert dict(config.plugins["pruner"]) == {"batch": 2, "dry": True}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("batch = 'many'", "[plugins.pruner] batch: found 'many', expected `int`, got `str`"),
        ("batch = true", "[plugins.pruner] batch: found True, expected `int`, got `bool`"),
        ("interval = 5", "[plugins.pruner] interval: the duration 5 has no unit; write 5s"),
        ("interval = 'never'", "[plugins.pruner] interval: 'never' is no duration"),
        ("dry = 'perhaps'", "[plugins.pruner] dry: found 'perhaps', expected true or false"),
        ("mode = 'medium'", "[plugins.pruner] mode: found 'medium', invalid enum value"),
        (
            "bacth = 5",
            "[plugins.pruner] bacth: the plugin 'pruner' has no setting 'bacth'; did you mean 'batch'?",
        ),
        ("batch = 0", "batch must be at least 1"),
    ],
)
def test_a_wrong_plugin_setting_names_file_and_key(tmp_path: Path, line: str, expected: str) -> None:
    config = load(tmp_path, f"[plugins.pruner]\n{line}")
    with pytest.raises(ConfigError) as caught:
        config.plugin("pruner", PrunerSettings)
    assert expected in str(caught.value)
    assert "jobkit.toml" in str(caught.value)


def test_a_plugin_setting_without_default_that_is_missing_is_named() -> None:
    with pytest.raises(ConfigError, match=r"\[plugins.mirror\] lacks the setting 'target-url'"):
        Config().plugin("mirror", Mirror)


def test_a_constraint_of_a_plugin_setting_is_kept() -> None:
    config = Config(plugins={"mirror": {"target-url": "x", "retry-count": 10}})
    with pytest.raises(
        ConfigError, match=r"constructor plugins.mirror.retry-count: found 10, expected `int` <= 9"
    ):
        config.plugin("mirror", Mirror)


def test_a_wrong_secret_of_a_plugin_is_not_shown() -> None:
    @dataclass
    class Vault:
        api_token: list[int] = field(default_factory=list)

    config = Config(plugins={"vault": {"api_token": [SECRET]}})
    with pytest.raises(ConfigError) as caught:
        config.plugin("vault", type(Vault()))
    assert SECRET not in str(caught.value)


def test_settings_of_another_kind_of_class_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"neither a dataclass nor a msgspec.Struct"):
        Config().plugin("x", int)


def test_names_that_no_plugin_has_are_reported_with_their_place(tmp_path: Path) -> None:
    config = load(tmp_path, "[plugins.prunr]\nbatch = 1", overrides={"disable": ["cron", "corn"]})
    assert config.unknown_plugins({"pruner", "cron"}) == [
        f"{tmp_path / 'jobkit.toml'} [plugins.prunr] batch: "
        "there is no plugin 'prunr'; did you mean 'pruner'?",
        "constructor disable: there is no plugin 'corn'; did you mean 'cron'?",
    ]
