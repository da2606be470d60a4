"""The configuration file: where it is looked for, what it may hold, and how its mistakes are reported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from jobkit.config import Config, QueueConfig
from jobkit.errors import ConfigError


def load(
    folder: Path,
    text: str | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
    command_line: Mapping[str, object] | None = None,
) -> Config:
    if text is not None:
        (folder / "jobkit.toml").write_text(text, encoding="utf-8")
    return Config.load(
        environ=environ or {}, overrides=overrides, command_line=command_line, search_from=folder
    )


def refusal(folder: Path, text: str | None = None, **sources: Mapping[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder, text, **sources)
    return str(caught.value)


def test_the_nearest_file_above_is_found(tmp_path: Path) -> None:
    (tmp_path / "jobkit.toml").write_text('table_prefix = "near_"')
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    config = load(deep)
    assert config.table_prefix == "near_"
    assert config.file == tmp_path / "jobkit.toml"
    assert str(config.origin("table_prefix")) == f"{tmp_path / 'jobkit.toml'} table_prefix"


def test_a_pyproject_counts_only_with_a_table_for_jobkit(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "pyproject.toml").write_text('[project]\nname = "uses-jobkit"')
    (tmp_path / "pyproject.toml").write_text(
        '[tool.jobkit.plugins.pruner]\nbatch = 7\n[tool.jobkit]\narm = "portable"'
    )
    config = load(inner)
    assert config.arm == "portable"
    assert str(config.origin("plugins.pruner.batch")).endswith(
        "pyproject.toml [tool.jobkit.plugins.pruner] batch"
    )
    assert str(config.origin("arm")).endswith("pyproject.toml [tool.jobkit] arm")


def test_jobkit_toml_wins_over_the_pyproject_beside_it(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.jobkit]\ntable_prefix = "pyproject_"')
    assert load(tmp_path, 'table_prefix = "own_"').table_prefix == "own_"


def test_another_tools_broken_pyproject_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project\nname = ")
    assert load(tmp_path) == Config()


def test_a_named_file_may_have_any_name(tmp_path: Path) -> None:
    path = tmp_path / "production.toml"
    path.write_text('arm = "portable"')
    assert Config.load(file=path, environ={}).arm == "portable"
    assert Config.load(file=str(path), environ={}).arm == "portable"
    assert Config.load(environ={"JOBKIT_CONFIG": str(path)}, search_from=tmp_path).arm == "portable"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.toml", None, "there is no configuration file"),
        ("broken.toml", b"arm = ", "is not valid TOML"),
        ("latin.toml", b'arm = "\xe9"', "cannot be read"),
        ("pyproject.toml", b"[tool.other]", r"has no table \[tool.jobkit\]"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        Config.load(file=tmp_path / name, environ={})
    assert name in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('queue = "a:1"', "jobkit.toml queue: there is no setting 'queue'; did you mean 'queues'?"),
        ('prune-after = "1d"', "there is no setting 'prune-after'; did you mean 'prune_after'?"),
        (
            "[process]\nchilds = 1",
            "[process] childs: there is no setting 'process.childs'; did you mean 'children'?",
        ),
        (
            "[redaction]\nkey = []",
            "[redaction] key: there is no setting 'redaction.key'; did you mean 'keys'?",
        ),
        ("xyzzy = 1", "there is no setting 'xyzzy'"),
        ("process = 3", "jobkit.toml process: found 3, expected a table"),
        ('plugins = "all"', "jobkit.toml plugins: found 'all', expected a table"),
        ("[plugins]\npruner = 5", "[plugins] pruner: found 5, expected a table of settings"),
        ("[replace]\npruner = 5", "[replace] pruner: found 5, expected the name of a distribution"),
        ('[plugins."a b"]\nx = 1', "'a b'"),
    ],
)
def test_an_unknown_setting_of_the_file_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in refusal(tmp_path, text)


def test_a_relative_sqlite_path_means_relative_to_its_file(tmp_path: Path) -> None:
    config = load(tmp_path, 'database_url = "sqlite:///data/jobs.db?timeout=5"')
    assert config.database_url == f"sqlite:///{tmp_path}/data/jobs.db?timeout=5"


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///:memory:", "sqlite:////var/jobs.db", "postgresql://h/d"]
)
def test_other_urls_of_the_file_stay_as_given(tmp_path: Path, url: str) -> None:
    assert load(tmp_path, f'database_url = "{url}"').database_url == url


def test_a_file_in_the_working_directory_leaves_its_path_as_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load(tmp_path, 'database_url = "sqlite:///jobs.db"').database_url == "sqlite:///jobs.db"


def test_queues_may_be_a_table_of_the_file(tmp_path: Path) -> None:
    config = load(tmp_path, "[queues]\ndefault = 20\nreports = { limit = 1, paused = true }")
    assert config.queues == {"default": QueueConfig(20), "reports": QueueConfig(1, paused=True)}


def test_a_number_without_end_is_no_valid_toml(tmp_path: Path) -> None:
    assert "is not valid TOML" in refusal(tmp_path, "dead_after = " + "9" * 5_000)
