"""The Markdown of a run: a table a kind of work, its rows sorted, each set against jobkit at the same work.

A page includes it between the two markers; what stands between them is replaced, the rest is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmarks.harness import goals
from benchmarks.harness.results import Results
from benchmarks.harness.roster import BASELINE, ROSTER, Contender
from benchmarks.harness.stats import Spread

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
CONTENDERS = {contender.name: contender for contender in ROSTER}

TITLES = {
    "drain": "Drain: jobs a second, first run to last record",
    "single": "Enqueue one: durable inserts a second, one after the other",
    "bulk": "Enqueue many: jobs a second by each one's best means",
    "bulk_unique": "Enqueue many, each with a unique key: jobs a second",
    "latency": "Latency on an idle worker: milliseconds from the call that enqueues to the start of the job (p50)",
    "latency_transaction": "The same, enqueued in the caller's own transaction",
    "idle": "Idle, two queues: statements a second (Redis: commands)",
    "idle50": "Idle, fifty queues: statements a second",
    "memory": "Memory of a worker at rest: MB",
    "limit": "What the databases allow: jobs a second on one bare connection",
}
FURTHER = {
    "drain": (
        ("worker us/job", "worker_us"),
        ("server us/job", "server_us"),
        ("WAL B/job", "wal"),
        ("RSS MB", "rss"),
    ),
    "latency": (("p95", "p95"), ("p99", "p99"), ("max", "max"), ("p50 from commit", "commit_p50")),
    "latency_transaction": (
        ("p95", "p95"),
        ("p99", "p99"),
        ("max", "max"),
        ("p50 from commit", "commit_p50"),
    ),
    "idle": (("begin + commit /s", "frames"), ("CPU %", "cpu"), ("RSS MB", "rss")),
    "idle50": (("begin + commit /s", "frames"), ("CPU %", "cpu"), ("RSS MB", "rss")),
    "memory": (("growth MB", "growth"),),
}
SMALL_IS_GOOD = frozenset({"latency", "latency_transaction", "idle", "idle50", "memory"})


def render(results: Results) -> str:
    """Everything that was measured, as Markdown."""
    parts = [
        machine(results),
        goal_table(results),
        *(table(results, kind) for kind in TITLES),
        failures(results),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def machine(results: Results) -> str:
    about = results.machine
    return (
        f"Measured on {about.get('date')}: {about.get('cpus')} cores ({about.get('processor')}), "
        f"{about.get('system')}, "
        f"Python {about.get('python')}, Postgres {about.get('postgres')}, SQLite {about.get('sqlite')}, "
        f"Redis {about.get('redis')}; one durable write takes {about.get('fdatasync')}. "
        f"Medians over the rounds, with the lowest and the highest. † is not durable: a crash loses jobs."
    )


def goal_table(results: Results) -> str:
    rows = [
        [
            goal.text,
            figure(ratio),
            f"{'at most' if goal.at_most else 'at least'} {figure(goal.bound)}",
            yes(goal.met(ratio)),
        ]
        for goal, ratio in goals.evaluate(results)
    ]
    return "### Where it must come to\n\n" + grid(["work", "reached", "wanted", "met"], rows) if rows else ""


def table(results: Results, kind: str) -> str:
    """One kind of work, best first; empty when it was not measured."""
    found = [
        (name, setting, results.spread(f"{kind}|{name}|{setting}")) for name, setting in results.names(kind)
    ]
    if not found:
        return ""
    found.sort(key=lambda row: row[2].median if row[2] else float("inf"), reverse=kind not in SMALL_IS_GOOD)
    further = FURTHER.get(kind, ())
    head = ["", "setting", "median", "lowest", "highest", f"/ {BASELINE}", *(title for title, _ in further)]
    rows = [row(results, kind, name, setting, spread, further) for name, setting, spread in found]
    return f"### {TITLES[kind]}\n\n" + grid(*without_empty_columns(head, rows))


def row(
    results: Results,
    kind: str,
    name: str,
    setting: str,
    spread: Spread | None,
    further: Sequence[tuple[str, str]],
) -> list[str]:
    ratio = against_baseline(results, kind, name, setting, spread)
    shown = [figure(spread.median), figure(spread.low), figure(spread.high)] if spread else ["-", "-", "-"]
    extra = [figure(results.median(kind, name, setting, key)) for _, key in further]
    return [label(name), setting, *shown, ratio, *extra]


def against_baseline(results: Results, kind: str, name: str, setting: str, spread: Spread | None) -> str:
    """How this figure stands to jobkit's on the same kind of database: at the same setting, else at its best."""
    contender = CONTENDERS.get(name)
    if spread is None or contender is None:
        return ""
    rival = rival_of(contender)
    reference = results.median(kind, rival, setting)
    if reference is None and kind == "drain":
        reference = results.best(rival)
    return f"{spread.median / reference:.2f}x" if reference else ""


def rival_of(contender: Contender) -> str:
    """jobkit on SQLite for a SQLite queue, jobkit on Postgres for all others."""
    return f"{BASELINE}_sqlite" if contender.database == "sqlite" else BASELINE


def label(name: str) -> str:
    contender = CONTENDERS.get(name)
    if contender is None:
        return name
    note = f" ({contender.note})" if contender.note else ""
    mark = "" if contender.durable else " †"
    shown = f"{name}{mark}{note}"
    return f"**{shown}**" if contender.adapter == BASELINE else shown


def failures(results: Results) -> str:
    if not results.failures:
        return ""
    lines = [
        f"- {one['key'].replace('|', ' ').strip()}: {one['error'].split(chr(10))[0]}"
        for one in results.failures
    ]
    return "### Not measured\n\n" + "\n".join(lines)


def figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def yes(met: bool) -> str:
    return "yes" if met else "**no**"


def without_empty_columns(head: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    kept = [index for index in range(len(head)) if index == 0 or any(line[index] for line in rows)]
    return [head[index] for index in kept], [[line[index] for index in kept] for line in rows]


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table with figures to the right."""
    rows = list(rows)
    widths = [max(len(line[index]) for line in [head, *rows]) for index in range(len(head))]
    left = [index == 0 or not any(line[index][:1].isdigit() for line in rows) for index in range(len(head))]

    def write(cells: Sequence[str]) -> str:
        place: list[Callable[[str, int], str]] = [str.ljust if is_left else str.rjust for is_left in left]
        return (
            "| "
            + " | ".join(put(cell, width) for put, cell, width in zip(place, cells, widths, strict=True))
            + " |"
        )

    rule = (
        "|"
        + "|".join(
            "-" * (width + 1) + ("-" if is_left else ":") for width, is_left in zip(widths, left, strict=True)
        )
        + "|"
    )
    return "\n".join([write(head), rule, *(write(line) for line in rows)])


def include(page: Path, text: str) -> None:
    """Put the text between the page's markers; a page without them, or a missing one, gets them at its end."""
    content = page.read_text() if page.exists() else "# Performance\n"
    if BEGIN not in content or END not in content:
        content = f"{content.rstrip()}\n\n{BEGIN}\n{END}\n"
    before, rest = content.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}")
