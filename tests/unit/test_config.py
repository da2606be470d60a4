"""The configuration: where each value comes from, what is refused, and what the messages say."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import FrozenInstanceError
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from sqlalchemy.engine import make_url

from jobkit.config import (
    SETTINGS,
    Config,
    Origin,
    ProcessConfig,
    QueueConfig,
    environment_name,
    unknown_variables,
)
from jobkit.errors import ConfigError
from jobkit.redact import RedactionRules

PASSWORD = "hunter2-not-a-password"


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


# ---------------------------------------------------------------- defaults and direct construction


def test_the_defaults_are_those_of_a_careful_operator() -> None:
    config = Config()
    assert config.database_url == "sqlite:///jobkit.db"
    assert config.queues == {"default": QueueConfig(10), "mailers": QueueConfig(5)}
    assert config.prune_after == timedelta(days=7)
    assert config.shutdown_grace == timedelta(seconds=25)
    assert config.unknown_worker_grace == timedelta(minutes=10)
    assert config.dead_after == timedelta(seconds=15)
    assert (config.table_prefix, config.schema, config.app) == ("jobkit_", None, None)
    assert (config.imports, config.disable) == ((), ())
    assert (config.notify, config.arm) == ("after_commit", "auto")
    assert (config.sqlite_synchronous, config.postgres_prepare) == ("full", "auto")
    assert (dict(config.replace), dict(config.plugins)) == ({}, {})
    assert config.redaction == RedactionRules()
    assert config.process == ProcessConfig(children=2, max_jobs=1_000, max_memory=512_000_000)
    assert config.file is None


def test_the_constructor_reads_neither_file_nor_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobkit.toml").write_text('table_prefix = "from_file_"')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JOBKIT_TABLE_PREFIX", "from_env_")
    assert Config().table_prefix == "jobkit_"


def test_the_constructor_takes_values_of_their_own_types_and_in_any_form_of_the_file() -> None:
    typed = Config(
        queues={"mail": QueueConfig(3), "web": 2}, prune_after=timedelta(hours=1), imports=["jobs"]
    )
    text = Config(queues="mail:3,web:2", prune_after="1h", imports="jobs")
    assert typed == text
    assert typed.imports == ("jobs",)


def test_the_constructor_takes_whole_groups_mappings_and_dotted_parameters() -> None:
    whole = Config(process=ProcessConfig(children=3), redaction=RedactionRules(keys=("pin",)))
    mapped = Config(process={"children": 3}, redaction={"keys": ["pin"]})
    flat = Config.load(environ={}, overrides={"process_children": 3, "redaction.keys": "pin"}, file=None)
    assert whole == mapped
    assert (whole.process.children, whole.redaction.keys) == (3, ("pin",))
    assert (flat.process.children, flat.redaction.keys) == (3, ("pin",))


def test_the_constructor_takes_a_sqlalchemy_url_with_its_password() -> None:
    config = Config(database_url=make_url("postgresql://u:secret@h/d"))
    assert config.database_url == "postgresql://u:secret@h/d"


def test_none_means_left_out_where_a_setting_has_no_none_of_its_own() -> None:
    assert Config(database_url=None, queues=None) == Config()
    assert Config(prune_after=None).prune_after is None
    assert Config(unknown_worker_grace=None).unknown_worker_grace is None


def test_a_config_is_frozen_all_the_way_down() -> None:
    config = Config(plugins={"pruner": {"batch": 5}})
    with pytest.raises(FrozenInstanceError):
        config.arm = "portable"  # type: ignore[misc]
    with pytest.raises(TypeError):
        config.queues["x"] = QueueConfig()  # type: ignore[index]
    with pytest.raises(TypeError):
        config.plugins["pruner"]["batch"] = 6  # type: ignore[index]


def test_an_unknown_keyword_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(
        ConfigError, match=r"constructor queue: there is no setting 'queue'; did you mean 'queues'\?"
    ):
        Config(queue="default:1")  # type: ignore[call-arg]


def test_a_wrong_keyword_value_names_the_keyword_and_the_value() -> None:
    with pytest.raises(ConfigError, match=r"constructor arm: found 'fast', expected one of: auto, portable"):
        Config(arm="fast")  # type: ignore[arg-type]


# ---------------------------------------------------------------- precedence and origins


def test_command_line_wins_over_constructor_over_environment_over_file_over_default(tmp_path: Path) -> None:
    text = 'queues = "file:1"\ntable_prefix = "file_"\nnotify = "off"\narm = "portable"'
    environ = {"JOBKIT_QUEUES": "env:1", "JOBKIT_TABLE_PREFIX": "env_", "JOBKIT_NOTIFY": "in_statement"}
    overrides = {"queues": "constructor:1", "table_prefix": "constructor_"}
    config = load(tmp_path, text, environ, overrides, {"queues": "option:1"})
    assert list(config.queues) == ["option"]
    assert (config.table_prefix, config.notify, config.arm) == ("constructor_", "in_statement", "portable")
    assert config.sqlite_synchronous == "full"


def test_each_value_knows_its_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = 'arm = "portable"\n[process]\nchildren = 4\n[plugins.pruner]\ninterval = "5s"\n'
    text += '[replace]\ncron = "acme"'
    config = load(
        tmp_path,
        text,
        {"JOBKIT_NOTIFY": "off"},
        {"disable": ["cron"]},
        {"queues": "a:1", "imports": ("jobs",)},
    )
    assert str(config.origin("arm")) == "jobkit.toml arm"
    assert str(config.origin("process.children")) == "jobkit.toml [process] children"
    assert str(config.origin("plugins.pruner.interval")) == "jobkit.toml [plugins.pruner] interval"
    assert str(config.origin("replace.cron")) == "jobkit.toml [replace] cron"
    assert config.origin("notify") == Origin("environment", "JOBKIT_NOTIFY")
    assert str(config.origin("notify")) == "environment JOBKIT_NOTIFY"
    assert str(config.origin("disable")) == "constructor disable"
    assert str(config.origin("queues")) == "command line --queues"
    assert str(config.origin("imports")) == "command line --imports"
    assert str(config.origin("schema")) == "default"
    assert str(config.origin("plugins.pruner.batch")) == "default"


def test_the_origin_of_an_unknown_setting_is_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'queues'"):
        Config().origin("queus")


def test_an_empty_variable_counts_as_unset(tmp_path: Path) -> None:
    environ = {spec.env: " " if spec.repeatable else "" for spec in SETTINGS.values()}
    environ |= {
        "JOBKIT_CONFIG": "",
        "JOBKIT_REDACTION": "",
        "JOBKIT_PLUGINS_PRUNER_BATCH": "",
        "JOBKIT_REPLACE_X": "",
    }
    config = load(tmp_path, None, environ)
    assert config == Config()
    assert not config.plugins
    assert not config.replace


def test_options_that_were_not_given_are_no_values(tmp_path: Path) -> None:
    options = {spec.parameter: () if spec.repeatable else None for spec in SETTINGS.values()}
    assert load(tmp_path, 'imports = ["jobs"]', command_line=options).imports == ("jobs",)


def test_every_setting_of_the_table_can_come_from_its_variable(tmp_path: Path) -> None:
    values = {
        "database_url": "postgresql://h/d",
        "queues": "a:1",
        "prune_after": "1d",
        "shutdown_grace": "1s",
        "unknown_worker_grace": "0",
        "dead_after": "4s",
        "table_prefix": "x_",
        "schema": "jobs",
        "imports": "a,b.c",
        "app": "shop:app",
        "disable": "cron,pruner",
        "notify": "off",
        "arm": "portable",
        "sqlite_synchronous": "normal",
        "postgres_prepare": "on",
        "redaction.keys": "pin, iban",
        "redaction.patterns": r"x{1\,3},y",
        "redaction.allow": "args.token_count",
        "redaction.off": "yes",
        "process.children": "7",
        "process.max_jobs": "never",
        "process.max_memory": "1GiB",
    }
    assert values.keys() == SETTINGS.keys()
    config = load(tmp_path, None, {environment_name(name): value for name, value in values.items()})
    assert all(config.origin(name).kind == "environment" for name in values)
    assert config.unknown_worker_grace == timedelta(0)
    assert config.imports == ("a", "b.c")
    assert config.disable == ("cron", "pruner")
    assert config.redaction == RedactionRules(
        keys=("pin", "iban"), patterns=("x{1,3}", "y"), allow=("args.token_count",), off=True
    )
    assert config.process == ProcessConfig(children=7, max_jobs=None, max_memory=2**30)


def test_load_uses_the_environment_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBKIT_TABLE_PREFIX", "env_")
    assert Config.load(search_from=tmp_path).table_prefix == "env_"


def test_redaction_off_may_be_said_in_one_word(tmp_path: Path) -> None:
    assert load(tmp_path, 'redaction = "off"').redaction.off
    assert load(tmp_path, "", {"JOBKIT_REDACTION": "off"}).redaction.off
    assert Config(redaction="off").redaction.off


def test_a_mistyped_variable_is_reported_and_a_strange_one_is_not() -> None:
    environ = {
        "JOBKIT_QUEUE": "a:1",
        "JOBKIT_WEATHER_IN_ROME": "sunny",
        "JOBKIT_PLUGINS_X_Y": "1",
        "PATH": "/bin",
    }
    assert unknown_variables(environ) == [
        "nothing reads the variable JOBKIT_QUEUE; did you mean JOBKIT_QUEUES?"
    ]


# ---------------------------------------------------------------- validation


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("prune_after", "0", "to keep finished jobs write never"),
        ("prune_after", "-1d", "is negative"),
        ("prune_after", "7", "has no unit; write 7s, 7m, 7h or 7d"),
        ("prune_after", "soon", "'soon' is no duration; expected one such as 10s"),
        ("prune_after", "200000d", "longer than 100 years"),
        ("shutdown_grace", "never", "is no duration"),
        ("dead_after", "2s", "expected at least 3s, since nodes give a sign of life once a second"),
        ("dead_after", "2h", "expected at most 1h"),
        ("dead_after", "off", "is no duration"),
        ("unknown_worker_grace", "-5s", "is negative"),
        ("table_prefix", "Jobs-", "no valid table prefix"),
        ("table_prefix", "x" * 25, "at most 24"),
        ("schema", "1st", "no valid schema"),
        ("schema", 'a"; drop', "no valid schema"),
        ("imports", "jobs.py!", "no module name"),
        ("imports", "jobs,,x", "no module name"),
        ("app", "shop", "expected module:attribute"),
        ("app", "shop:", "expected module:attribute"),
        ("disable", "cr on", "'cr on'"),
        ("notify", "maybe", "expected one of: after_commit, in_statement, off"),
        ("sqlite_synchronous", "2", "expected one of: full, extra, normal, off"),
        ("postgres_prepare", "perhaps", "expected one of: auto, on, off"),
        ("redaction.patterns", "[", "no regular expression"),
        ("redaction.off", "perhaps", "expected true or false"),
        ("process.children", "0", "a whole number from 1 to 1024"),
        ("process.children", "many", "found 'many', expected a whole number"),
        ("process.children", "2.5", "found '2.5', expected a whole number"),
        ("process.max_jobs", "0", "a whole number from 1"),
        ("process.max_memory", "512", "no size; expected one such as 512MB"),
        ("process.max_memory", "1MB", "at least 16MB"),
        ("database_url", "jobs.db", "no database URL"),
        ("database_url", "postgresql://h:port/d", "no database URL"),
        ("queues", "default", "has no limit"),
    ],
)
def test_RT3_a_wrong_value_is_refused_and_its_variable_named(
    tmp_path: Path, name: str, value: str, expected: str
) -> None:
    message = refusal(tmp_path, environ={environment_name(name): value})
    assert message.startswith(f"environment {environment_name(name)}: ")
    assert expected in message


@pytest.mark.parametrize("value", [7, 7.5, True, [], {"days": 7}])
def test_PR5_retention_that_is_no_duration_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="constructor prune_after"):
        Config(prune_after=value)  # type: ignore[arg-type]


@pytest.mark.parametrize("word", ["never", "off", "Never", " OFF "])
def test_PR5_keeping_finished_jobs_for_ever_is_said_explicitly(tmp_path: Path, word: str) -> None:
    assert load(tmp_path, f'prune_after = "{word}"').prune_after is None


def test_PR5_a_false_of_the_file_does_not_switch_pruning_off(tmp_path: Path) -> None:
    assert "prune_after" in refusal(tmp_path, "prune_after = false")


def test_SC5_zero_and_fractions_mean_what_they_say(tmp_path: Path) -> None:
    config = load(tmp_path, 'unknown_worker_grace = 0\nshutdown_grace = "0s"\nprune_after = "0.5s"')
    assert config.unknown_worker_grace == timedelta(0)
    assert config.shutdown_grace == timedelta(0)
    assert config.prune_after == timedelta(milliseconds=500)


def test_the_unknown_worker_grace_may_be_never(tmp_path: Path) -> None:
    assert load(tmp_path, 'unknown_worker_grace = "never"').unknown_worker_grace is None


def test_QU5_a_repeated_queue_of_the_file_is_refused_with_its_place(tmp_path: Path) -> None:
    message = refusal(tmp_path, 'queues = "a:1,a:2"')
    assert message == f"{tmp_path / 'jobkit.toml'} queues: the queue 'a' is named twice; name each queue once"


def test_switches_of_toml_stand_for_on_and_off(tmp_path: Path) -> None:
    config = load(tmp_path, "postgres_prepare = true\nnotify = false")
    assert (config.postgres_prepare, config.notify) == ("on", "off")


def test_the_table_prefix_may_be_empty() -> None:
    assert Config(table_prefix="").table_prefix == ""


def test_a_list_counts_a_repeated_item_once() -> None:
    assert Config(imports=["a", "b", "a"]).imports == ("a", "b")


def test_no_message_contains_the_password_of_a_url(tmp_path: Path) -> None:
    message = refusal(tmp_path, f'database_url = "postgresql://u:{PASSWORD}@h:port/d"')
    assert PASSWORD not in message
    assert "postgresql://u:***@h:port/d" in message


# ---------------------------------------------------------------- showing and handing over


def test_describe_lists_every_setting_with_its_origin(tmp_path: Path) -> None:
    config = load(
        tmp_path, '[plugins.pruner]\nbatch = 5\n[replace]\ncron = "acme"', {"JOBKIT_PRUNE_AFTER": "off"}
    )
    shown = {setting.name: setting for setting in config.describe()}
    assert list(shown) == [*SETTINGS, "replace.cron", "plugins.pruner.batch"]
    assert shown["queues"].value == "default:10,mailers:5"
    assert (shown["prune_after"].value, str(shown["prune_after"].origin)) == (
        "never",
        "environment JOBKIT_PRUNE_AFTER",
    )
    assert shown["shutdown_grace"].value == "25s"
    assert shown["process.max_memory"].value == "512MB"
    assert shown["imports"].value == []
    assert shown["plugins.pruner.batch"].value == 5
    assert msgspec.json.encode([setting.value for setting in config.describe()])


def test_no_password_leaves_by_describe_or_repr() -> None:
    config = Config(
        database_url=f"postgresql://u:{PASSWORD}@h/d?sslpassword={PASSWORD}",
        plugins={
            "hook": {"url": f"https://u:{PASSWORD}@h", "api_key": PASSWORD, "auth": {"password": PASSWORD}}
        },
    )
    assert PASSWORD not in str(config.describe())
    assert PASSWORD not in repr(config)
    shown = {setting.name: setting.value for setting in config.describe()}
    assert shown["database_url"] == "postgresql://u:***@h/d?sslpassword=***"
    assert shown["plugins.hook.url"] == "https://u:***@h"


def everything() -> Config:
    return Config(
        database_url=f"postgresql://u:{PASSWORD}@h/d",
        queues={"a": QueueConfig(3, paused=True), "b": 4},
        prune_after=None,
        unknown_worker_grace="0.25s",
        table_prefix="",
        schema="jobs",
        imports=["a.b"],
        app="a.b:app",
        disable=["cron"],
        redaction=RedactionRules(keys=("pin",), patterns=("a,b",)),
        process=ProcessConfig(3, None, None),
        replace={"pruner": "acme"},
        plugins={"pruner": {"interval": "5s", "queues": ["x"]}},
    )


def test_a_config_survives_the_way_to_a_child_process_as_json() -> None:
    config = everything()
    assert Config.from_plain(msgspec.json.decode(msgspec.json.encode(config.to_plain()))) == config
    assert Config.from_plain(Config().to_plain()) == Config()


def test_override_changes_what_it_names_and_keeps_the_origins_of_the_rest(tmp_path: Path) -> None:
    config = load(tmp_path, 'arm = "portable"\n[plugins.pruner]\nbatch = 1', {"JOBKIT_NOTIFY": "off"})
    changed = config.override(database_url="sqlite:///other.db")
    assert (changed.database_url, changed.arm, changed.notify) == ("sqlite:///other.db", "portable", "off")
    assert str(changed.origin("notify")) == "environment JOBKIT_NOTIFY"
    assert changed.origin("plugins.pruner.batch") == config.origin("plugins.pruner.batch")
    assert changed.origin("queues").kind == "default"
    assert changed.file == config.file
    assert config.override(database_url=None) == config
    assert everything().override() == everything()


# ---------------------------------------------------------------- the table of settings


def test_no_two_settings_share_a_variable_or_an_option() -> None:
    variables = [spec.env for spec in SETTINGS.values()]
    options = [option for spec in SETTINGS.values() for option in spec.options]
    assert len(set(variables)) == len(variables)
    assert len(set(options)) == len(options)


def test_the_names_of_variables_and_options_follow_from_the_setting() -> None:
    spec = SETTINGS["process.max_jobs"]
    assert (spec.env, spec.option, spec.parameter) == (
        "JOBKIT_PROCESS_MAX_JOBS",
        "--process-max-jobs",
        "process_max_jobs",
    )
    assert SETTINGS["database_url"].options == ("--db", "--database-url")
    assert SETTINGS["shutdown_grace"].options == ("--grace", "--shutdown-grace")
    assert SETTINGS["imports"].options == ("--import", "--imports")


@pytest.mark.parametrize("spec", SETTINGS.values(), ids=list(SETTINGS))
def test_each_default_is_accepted_and_survives_its_plain_form(spec: object) -> None:
    assert isinstance(spec, type(SETTINGS["queues"]))
    assert spec.parse(spec.default) == spec.default
    assert spec.parse(spec.plain(spec.default)) == spec.default
    assert spec.help.endswith(".")
    assert spec.form


def test_loading_the_configuration_loads_no_heavy_modules() -> None:
    code = "import sys, jobkit.config; print(*{'alembic', 'rich', 'click', 'croniter'} & set(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert result.stdout.strip() == ""


def test_values_that_cross_processes_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(QueueConfig(3))) == QueueConfig(3)
    assert pickle.loads(pickle.dumps(ProcessConfig())) == ProcessConfig()
