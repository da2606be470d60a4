"""Health checks: what `jobkit doctor`, the overview and `/ready` ask, as data.

Each finding says what was found, why it matters, and the command that mends it. Invariants: a check writes
nothing and takes at most its time; one that fails is itself a finding, and stops no other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, func, select

from jobkit.admin._ast import Exact, Query, Term
from jobkit.admin._context import Context
from jobkit.admin._cron_reads import LATE, missed_run
from jobkit.admin._fleet_reads import FleetReads, fleet_of, skew_of
from jobkit.admin._system_reads import LIVE_FOR, missing_workers
from jobkit.admin.errors import AdminError, DatabaseMissing
from jobkit.admin.guard import not_migrated, read_only
from jobkit.admin.why import span
from jobkit.errors import NotMigrated, ScheduleError
from jobkit.hookspecs import Actor, Check, CheckContext, Finding
from jobkit.schedules import CronExpression

if TYPE_CHECKING:
    from jobkit.core import Core

__all__ = ["CHECKS", "Diagnosis", "checks_of", "diagnose"]

TIMEOUT: Final = timedelta(seconds=2)
_DOCTOR: Final = Actor("doctor")
_SLOW: Final = 0.5
_SKEW: Final = timedelta(seconds=2)
_BACKLOG_AGE: Final = timedelta(minutes=10)
_SCHEMA_FIX: Final = "jobkit migrate up"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What one check found; at least one finding."""

    id: str
    title: str
    findings: tuple[Finding, ...]

    @property
    def level(self) -> str:
        """The worst of its findings: `broken`, `attention` or `ok`."""
        levels = {finding.level for finding in self.findings}
        return next((level for level in ("broken", "attention") if level in levels), "ok")


def diagnose(
    app: Core, *, only: Collection[str] = (), skip: Collection[str] = (), offline: bool = False
) -> tuple[Diagnosis, ...]:
    """Runs the checks: the built-in ones, then those of plugins. `offline` leaves out what needs a database.

    Once the database has turned out to be unreachable, or without its tables, checks that need it are left out.
    """
    found: list[Diagnosis] = []
    unusable = offline
    for check in checks_of(app):
        if (only and check.id not in only) or check.id in skip or (unusable and _asks(check)):
            continue
        findings, migrated = _run(app, check, offline)
        diagnosis = Diagnosis(check.id, check.title, findings)
        unusable |= not migrated or (check.id == "database" and diagnosis.level == "broken")
        found.append(diagnosis)
    return tuple(found)


def _asks(check: Check) -> bool:
    return check.needs_database or check.id == "database"


def checks_of(app: Core) -> list[Check]:
    """All checks; one of a plugin whose id is taken is left out and reported."""
    checks = {check.id: check for check in CHECKS}
    for plugin, given in app.registry.gather("jobkit_health_checks"):
        for check in _given(app, plugin, given):
            if check.id in checks:
                app.registry.failed(
                    plugin, "jobkit_health_checks", ValueError(f"the check id {check.id!r} is taken")
                )
            else:
                checks[check.id] = check
    return list(checks.values())


def _given(app: Core, plugin: str, given: object) -> Iterator[Check]:
    try:
        for check in given:  # type: ignore[attr-defined]
            if isinstance(check, Check):
                yield check
            else:
                raise TypeError(f"it gave {check!r:.100}, expected a Check")
    except Exception as error:  # noqa: BLE001 - whatever a plugin gives
        app.registry.failed(plugin, "jobkit_health_checks", error)


def _run(app: Core, check: Check, offline: bool) -> tuple[tuple[Finding, ...], bool]:
    """What was found, and whether the tables are there as far as this check could tell."""
    try:
        if not check.needs_database or offline:
            return _findings(check.run(CheckContext(app, None, app.clock.now()))), True
        with read_only(app, TIMEOUT) as conn:
            return _findings(check.run(CheckContext(app, conn, app.clock.now()))), True
    except NotMigrated as error:
        return (
            Finding("broken", not_migrated(error), "code and tables do not fit together", _SCHEMA_FIX),
        ), False
    except Exception as error:  # noqa: BLE001 - a check that fails is a finding
        told = app.redactor.text(f"{type(error).__name__}: {error}", kind="log")
        return (Finding("broken", "this check could not be made", told),), True


def _findings(found: Finding | Sequence[Finding]) -> tuple[Finding, ...]:
    listed = (found,) if isinstance(found, Finding) else tuple(found)
    return listed or (Finding("ok", "nothing found"),)


# -- the built-in checks


def _connection(ctx: CheckContext) -> Connection:
    assert ctx.conn is not None
    return ctx.conn


def _context(ctx: CheckContext) -> Context:
    context = Context(ctx.app, _DOCTOR, TIMEOUT)
    context.scope = Query()
    return context


def _database(ctx: CheckContext) -> Finding:
    """Reachable, and how fast."""
    clock = ctx.app.clock
    began = clock.monotonic()
    try:
        with read_only(ctx.app, TIMEOUT) as conn:
            conn.execute(select(1))
            version = _version(conn)
    except AdminError as error:
        url = ctx.app.engine.url.render_as_string(hide_password=True)
        missing = isinstance(error, DatabaseMissing)
        fix = _SCHEMA_FIX if missing else "start the database, or mend database_url"
        return Finding("broken", str(error), "" if missing else f"no answer from {url}", fix)
    took = clock.monotonic() - began
    text = f"{version} answered in {took * 1000:.0f} ms"
    if took > _SLOW:
        return Finding("attention", text, "each claim waits this long", "move the database closer")
    return Finding("ok", text)


def _version(conn: Connection) -> str:
    if conn.dialect.name == "sqlite":
        return f"SQLite {conn.scalar(select(func.sqlite_version()))}"
    return f"PostgreSQL {conn.exec_driver_sql('SHOW server_version').scalar()}"


def _schema(ctx: CheckContext) -> Finding:
    from jobkit.storage import migrations

    migrations.check(_connection(ctx), ctx.app.tables, ctx.app.migrations())
    return Finding("ok", "all migrations are applied")


def _clocks(ctx: CheckContext) -> Iterable[Finding]:
    """Ours against the database's, and those of nodes that are ahead of ours."""
    conn = _connection(ctx)
    if conn.dialect.name == "postgresql":
        theirs = conn.scalar(select(func.clock_timestamp()))
        if isinstance(theirs, datetime) and abs(ctx.app.clock.now() - theirs) > _SKEW:
            text = f"this machine's clock is {span(abs(ctx.app.clock.now() - theirs))} off the database's"
            yield Finding(
                "attention", text, "due times are judged by each machine's clock", "set clocks by NTP"
            )
    for node in ctx.app.storage.live_nodes(conn):
        ahead = skew_of(node, ctx.now)
        if ahead is not None and ahead > _SKEW:
            text = f"the clock of node {node.node} is {span(ahead)} ahead of this machine's"
            yield Finding(
                "attention", text, "its jobs may start early, and others' late", "set clocks by NTP"
            )


def _nodes(ctx: CheckContext) -> Iterable[Finding]:
    fleet = fleet_of(_context(ctx), _connection(ctx))
    live = fleet.live()
    if not live:
        yield Finding("broken", "no node is alive", "nothing runs jobs", "jobkit run")
    for node in fleet.nodes:
        if node not in live and node.lost_at is None:
            silent = span(ctx.now - node.heartbeat_at)
            text = f"node {node.node} has been silent for {silent}"
            yield Finding("attention", text, "no other node is there to call it dead", "jobkit run")
    versions = {str(node.info.get("jobkit", node.info.get("version", ""))) for node in live} - {""}
    if len(versions) > 1:
        text = f"nodes run different versions of jobkit: {', '.join(sorted(versions))}"
        yield Finding("attention", text, "a deployment is under way, or stopped half-way", "deploy all nodes")


def _wait(count: int, text: str = "") -> str:
    return f"{text or f'{count:,}'} {'job waits' if count == 1 else 'jobs wait'}"


def _queues(ctx: CheckContext) -> Iterable[Finding]:
    """Jobs wait where nobody works."""
    views = FleetReads(_context(ctx)).views(_connection(ctx))
    for view in views:
        waiting = view.available.value + view.scheduled.value + view.retryable.value
        if view.status == "no nodes" and waiting:
            last = f"; {view.last_node} ran it last" if view.last_node else ""
            text = f"queue {view.name}: {_wait(waiting)}, and no live node works on it{last}"
            yield Finding(
                "broken",
                text,
                "a job in a queue without nodes just waits",
                f"jobkit run --queues {view.name}:10",
            )
        elif view.nodes and not view.paused and view.limit == 0 and waiting:
            text = f"queue {view.name}: its limit is 0 on every node, {_wait(waiting)}"
            yield Finding(
                "attention", text, "a limit of 0 claims nothing", f"jobkit queues scale {view.name} 10"
            )
        elif view.status == "running" and view.oldest_age is not None and view.oldest_age > _BACKLOG_AGE:
            text = f"queue {view.name}: the oldest available job has waited for {span(view.oldest_age)}"
            yield Finding(
                "attention", text, "more comes in than is worked off", f"jobkit queues scale {view.name} N"
            )


def _workers(ctx: CheckContext) -> Iterable[Finding]:
    """Jobs that nobody can run."""
    conn, context = _connection(ctx), _context(ctx)
    workers = ctx.app.tables.workers.c
    seen = {row.name: row.last_seen_at for row in conn.execute(select(workers.name, workers.last_seen_at))}
    if not any(at >= ctx.now - LIVE_FOR for at in seen.values()):
        return
    grace = ctx.app.config.unknown_worker_grace
    end = "they wait until a node knows it" if grace is None else f"they are discarded after {span(grace)}"
    for name, count in sorted(missing_workers(context, conn, seen).items()):
        text = f"worker {name}: {count:,} available job{'' if count == 1 else 's'}, and no live node knows it"
        yield Finding("broken", text, end, "deploy the code that has it, or cancel them")


def _paused(ctx: CheckContext) -> Iterable[Finding]:
    for view in FleetReads(_context(ctx)).views(_connection(ctx)):
        if view.paused and view.available.value:
            by = f" by {view.paused_by}" if view.paused_by else ""
            until = f" until {view.paused_until:%Y-%m-%d %H:%M} UTC" if view.paused_until else ""
            text = f"queue {view.name} is paused{by}{until}, and {_wait(view.available.value, view.available.text)}"
            yield Finding("attention", text, view.reason, f"jobkit queues resume {view.name}")


def _stuck(ctx: CheckContext) -> Iterable[Finding]:
    conn, context = _connection(ctx), _context(ctx)
    for name, cause, fix in (
        ("orphaned", "their nodes are gone and no live node has rescued them yet", "jobkit rescue"),
        ("stuck", "they run longer than their timeout", "jobkit jobs cancel --query is:stuck"),
    ):
        query = Query((Term("is", (Exact(name, name),)),))
        count = sum(context.searcher(conn, query).tally(10_000).counts.values())
        if count:
            verb = "is" if count == 1 else "are"
            text = f"{count:,} executing job{'s' * (count != 1)} {verb} {name}"
            yield Finding("attention", text, cause, fix)


def _cron(ctx: CheckContext) -> Iterable[Finding]:
    """Entries that cannot run, and runs that did not come."""
    catch_up: dict[str, timedelta] = {}
    with suppress(ScheduleError):
        catch_up = {e.recurring.key: e.recurring.catch_up for e in ctx.app.registry.schedules()}
    for row in ctx.app.storage.entries(_connection(ctx)):
        try:
            expression = CronExpression.parse(row.cron, key=row.key, timezone=row.timezone)
        except ScheduleError as error:
            yield Finding(
                "broken", str(error), "the entry never runs", "mend the expression and restart a node"
            )
            continue
        missed = missed_run(row, expression, ctx.now, catch_up.get(row.key, LATE))
        if missed is not None:
            text = f"cron {row.key}: the run due at {missed:%Y-%m-%d %H:%M} UTC did not come"
            yield Finding(
                "attention", text, "no node that has the entry was up", f"jobkit cron run {row.key}"
            )


def _settings(ctx: CheckContext) -> Iterable[Finding]:
    conn = _connection(ctx)
    yield from (_sqlite if conn.dialect.name == "sqlite" else _postgres)(ctx, conn)


def _sqlite(ctx: CheckContext, conn: Connection) -> Iterator[Finding]:
    mode = str(conn.exec_driver_sql("PRAGMA journal_mode").scalar()).lower()
    if mode != "wal":
        yield Finding(
            "broken",
            f"the journal mode is {mode}, not wal",
            "readers and writers block each other",
            "open it once by jobkit: jobkit migrate",
        )
    if ctx.app.config.sqlite_synchronous in ("normal", "off"):
        text = f"sqlite_synchronous is {ctx.app.config.sqlite_synchronous}"
        yield Finding(
            "attention", text, "a power cut may take back the last commits", 'sqlite_synchronous = "full"'
        )
    name = str(ctx.app.engine.url.database or "")
    if kind := _network_filesystem(name):
        yield Finding(
            "broken", f"the file lies on {kind}", "its locks are not reliable", "move it to a local disk"
        )


_NETWORK: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p", "afs"})


def _network_filesystem(name: str) -> str | None:
    """The kind of a network file system that the file lies on, as far as the system tells."""
    path = os.path.realpath(name)
    best, kind = "", ""
    with suppress(OSError), open("/proc/mounts", encoding="utf-8") as mounts:
        for line in mounts:
            fields = line.split()
            if len(fields) < 3:
                continue
            _, where, found = fields[:3]
            inside = path == where or path.startswith(where.rstrip("/") + "/")
            if inside and len(where) >= len(best):
                best, kind = where, found
    return kind if kind in _NETWORK else None


def _postgres(ctx: CheckContext, conn: Connection) -> Iterator[Finding]:
    def show(name: str) -> str:
        return str(conn.exec_driver_sql(f"SELECT current_setting('{name}', true)").scalar())

    limit, used = int(show("max_connections")), _connections(conn)
    if used is not None and used > 0.9 * limit:
        text = f"{used} of {limit} connections are in use"
        yield Finding(
            "attention", text, "nodes may fail to connect", "raise max_connections, or use a pooler"
        )
    for name, wanted in (("autovacuum", "on"), ("track_counts", "on")):
        if show(name) != wanted:
            text = f"{name} is {show(name)}"
            yield Finding(
                "attention",
                text,
                "dead rows of jobs pile up and slow the claim",
                f"ALTER SYSTEM SET {name} = on",
            )
    if show("fsync") == "off":
        yield Finding(
            "attention",
            "fsync is off",
            "a crash of the server may lose everything",
            "ALTER SYSTEM SET fsync = on",
        )
    yield from _bloat(ctx, conn)


def _connections(conn: Connection) -> int | None:
    found = conn.exec_driver_sql("SELECT count(*) FROM pg_stat_activity").scalar()
    return None if found is None else int(found)


def _bloat(ctx: CheckContext, conn: Connection) -> Iterator[Finding]:
    jobs = ctx.app.tables.jobs
    quote: Callable[[str], str] = conn.dialect.identifier_preparer.quote
    name = f"{quote(jobs.schema)}.{quote(jobs.name)}" if jobs.schema else quote(jobs.name)
    row: Any = conn.exec_driver_sql(
        "SELECT n_live_tup, n_dead_tup FROM pg_stat_all_tables WHERE relid = to_regclass(%(name)s)",
        {"name": name},
    ).first()
    if row is not None and row[1] > 100_000 and row[1] > 2 * row[0]:
        text = f"{jobs.name} has {row[1]:,} dead rows for {row[0]:,} live ones"
        yield Finding("attention", text, "vacuum does not keep up", f"VACUUM {name}")


def _listed(
    check: Callable[[CheckContext], Iterable[Finding]], fine: str
) -> Callable[[CheckContext], Sequence[Finding]]:
    def run(ctx: CheckContext) -> Sequence[Finding]:
        return tuple(check(ctx)) or (Finding("ok", fine),)

    return run


CHECKS: Final = (
    Check("database", "Database reachable", _database, needs_database=False),
    Check("schema", "Tables up to date", _schema),
    Check("clocks", "Clocks agree", _listed(_clocks, "no clock is more than 2 s off")),
    Check("nodes", "Nodes alive", _listed(_nodes, "all known nodes are alive")),
    Check("queues", "Queues worked on", _listed(_queues, "every queue with jobs has nodes and keeps up")),
    Check("workers", "Workers known", _listed(_workers, "every waiting job's worker is known")),
    Check("paused", "Paused queues", _listed(_paused, "no jobs wait in a paused queue")),
    Check("stuck", "Orphaned and stuck jobs", _listed(_stuck, "none")),
    Check("cron", "Recurring entries", _listed(_cron, "all can run, and none was missed")),
    Check("settings", "Database settings", _listed(_settings, "as they should be")),
)
"""The built-in checks, in the order in which one makes sense after the other."""
