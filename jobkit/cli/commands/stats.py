"""`jobkit stats`: how much there is, how fast it goes, and conditions for monitoring."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import click

from jobkit.cli.errors import CommandError
from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.framework import Command
from jobkit.cli.jobtext import state_style
from jobkit.cli.output import Output
from jobkit.cli.session import Session, session_of
from jobkit.cli.shapes import Field, Shape
from jobkit.cli.statistics import METRICS, Condition, Figures, figures, percentiles, prometheus
from jobkit.cli.times import DurationParam
from jobkit.cli.watch import watch
from jobkit.cli.words import duration

if TYPE_CHECKING:
    from jobkit.admin.views import Count

__all__ = ["SHAPES", "stats"]


@dataclass(frozen=True, slots=True)
class Group:
    """One row of a breakdown."""

    by: str
    name: str
    count: Count | int


STATS: Final = Shape(
    "stats",
    (
        Field("at", "time", help="as of then"),
        Field("since", "seconds", help="the time that `ended` and `inserted` look back"),
        Field("states", "object", help="jobs by state: value and precision"),
        Field("ended", "object", help="jobs that became final within the time, by state"),
        Field("inserted", "count", help="jobs inserted within the time"),
        Field("failures", "number", help="the share of those that ended as discarded"),
        Field("rate", "number", help="jobs that ended a minute"),
        Field(
            "oldest",
            "seconds",
            help="for how long the first available job has waited; null where none waits",
            nullable=True,
        ),
        Field("nodes", "integer", get=lambda f: sum(not n.stale for n in f.nodes), help="live nodes"),
    ),
    listing=False,
    title="Figures",
)


def _of_figures(field: Field) -> Field:
    """The same field of a document, which holds the figures under that name."""
    return replace(field, get=lambda row: field.value(row["figures"]))


FULL: Final = Shape(
    STATS.name,
    (
        *(_of_figures(field) for field in STATS.fields),
        Field("groups", "list", help="the breakdown of --by"),
        Field("percentiles", "object", help="with --percentiles", nullable=True),
        Field("conditions", "list", help="those of --fail-if that are met"),
    ),
    listing=False,
    title="Figures",
)
BY: Final = Shape(
    "stats.by",
    (
        Field("by", help="queue, worker, node or state"),
        Field("name", help="which one", column="name"),
        Field("count", "count", help="how many jobs", column="jobs"),
    ),
    title="A breakdown",
)
SHAPES: Final = (FULL, BY)


@click.command(
    cls=Command,
    examples=[
        ("jobkit stats", "Counts by state, and what ended in the last hour."),
        ("jobkit stats --by worker --percentiles", "By worker; how long jobs ran and waited."),
        ("jobkit stats --fail-if 'failures>5%' --fail-if 'oldest>10m'", "For monitoring: exit code 10."),
        ("jobkit stats --format prometheus", "For a scraper."),
    ],
    epilog="Metrics of --fail-if: "
    + "; ".join(f"{name}: {text}" for name, (_, text) in METRICS.items())
    + ".",
)
@click.option("--since", type=DurationParam(), default="1h", metavar="DURATION", help="How far to look back.")
@click.option(
    "--by", multiple=True, type=click.Choice(["state", "queue", "worker", "node"]), help="Break it down."
)
@click.option("--percentiles", "spread", is_flag=True, help="How long the newest jobs ran and waited.")
@click.option("--fail-if", "conditions", multiple=True, metavar="CONDITION", help="Exit 10 where it is met.")
@click.option("--format", "form", type=click.Choice(["prometheus"]), help="Another format.")
@click.option("--watch", "interval", type=DurationParam(), metavar="DURATION", help="Again and again.")
@click.pass_context
def stats(
    ctx: click.Context,
    since: timedelta,
    by: tuple[str, ...],
    spread: bool,
    conditions: tuple[str, ...],
    form: str | None,
    interval: timedelta | None,
) -> None:
    """Print figures. Large counts are capped or estimated, and say so."""
    session = session_of(ctx)
    wanted = [Condition.parse(text) for text in conditions]

    def draw() -> None:
        found = figures(session.reads, since)
        met = [condition.said(found) for condition in wanted if condition.met(found)]
        if form == "prometheus":
            session.out.write(prometheus(found))
        else:
            _show(session, found, by, spread, met)
        if met:
            raise CommandError("; ".join(met), ExitCode.PROBLEMS)

    watch(session, interval, draw)


def _show(session: Session, found: Figures, by: tuple[str, ...], spread: bool, met: list[str]) -> None:
    groups = [group for name in by for group in _groups(session, found, name)]
    measured = percentiles(session.reads, found.since) if spread else None
    out = session.out
    if out.format in ("json", "jsonl"):
        out.item(FULL, {"figures": found, "groups": groups, "percentiles": measured, "conditions": met})
    elif by and not out.human:
        out.items(BY, groups)
    elif not out.human:
        out.items(BY, _groups(session, found, "state"))
    else:
        _draw(out, found, groups, measured)


def _groups(session: Session, found: Figures, by: str) -> list[Group]:
    if by == "state":
        return [Group(by, state, count) for state, count in found.states.items()]
    if by == "queue":
        return [Group(by, queue.name, queue.available) for queue in found.queues]
    facets = session.reads.facets(f"inserted:<{max(int(found.since.total_seconds()), 1)}s")
    return [
        Group(by, value.value, value.count)
        for facet in facets.facets
        if facet.qualifier == by
        for value in facet.values
    ]


def _draw(out: Output, found: Figures, groups: list[Group], measured: dict[str, object] | None) -> None:
    from rich.text import Text

    most = max((count.value for count in found.states.values()), default=0)
    for state, count in found.states.items():
        bar = "█" * (round(count.value / most * 30) if most else 0)
        row = Text(f"{state:10}", style=state_style(state))
        row.append(f" {count.text:>12}  ", style="default")
        row.append(bar, style=state_style(state))
        out.console.print(row)
    span = duration(found.since)
    out.pairs(
        {
            f"ended in {span}": ", ".join(f"{count.text} {state}" for state, count in found.ended.items()),
            f"inserted in {span}": found.inserted.text,
            "rate": f"{found.rate:.1f} a minute",
            "failures": f"{found.failures:.1%}",
            "oldest available": found.oldest,
            "live nodes": sum(not node.stale for node in found.nodes),
            **_measured(measured),
        }
    )
    if groups:
        out.items(BY, groups)


def _measured(measured: dict[str, object] | None) -> dict[str, object]:
    rows: dict[str, object] = {}
    for name in ("ran", "waited"):
        spread = (measured or {}).get(name)
        if isinstance(spread, dict):
            rows[name] = ", ".join(
                f"{at} {duration(timedelta(seconds=value))}" for at, value in spread.items()
            )
    return rows
