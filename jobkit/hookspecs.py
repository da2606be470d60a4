"""Every hook of jobkit, and the types that they pass: the catalogue for plugin authors.

A plugin is a module or object with functions of these names marked `@hookimpl`, reached through an entry
point of the group `jobkit`, a module in `imports`, or `plugins=`. A function may leave out arguments it does
not need.

Order: built-ins, distributions by name, imports, `plugins=`; later ones are asked first, and `tryfirst` and
`trylast` apply. Invariant: no docstring here promises less than an earlier release did; each hook is there
since api 1.

What happens when an implementation raises is one of four:

- *isolated*: logged with the plugin's name and counted; the other plugins are still asked; nothing else
  changes;
- *refused*: the plugin as a whole is skipped and named in the log and by `jobkit plugins`;
- *rolls back*: the database change that the hook is part of does not happen;
- *fails*: the operation that asked fails with that error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal

import pluggy

from jobkit._admintypes import Actor, AuditEvent, Check, CheckContext, Finding, Qualifier, Resource
from jobkit._hooktypes import API, JobContext, Node, PluginInfo, Runner, Service, StorageFactory
from jobkit.events import Event
from jobkit.jobs import Lease, Transition

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    import click
    from sqlalchemy import URL, Connection

    from jobkit.config import Config, QueueConfig
    from jobkit.core import Core
    from jobkit.jobs import JobInfo, NewJob
    from jobkit.schedules import Recurring
    from jobkit.storage.base import InsertedJob
    from jobkit.storage.migrations import Step
    from jobkit.workers import FunctionWorker, Worker

__all__ = [
    "API",
    "Actor",
    "AuditEvent",
    "Check",
    "CheckContext",
    "Event",
    "Finding",
    "JobContext",
    "Lease",
    "Node",
    "PluginInfo",
    "Qualifier",
    "Resource",
    "Runner",
    "Service",
    "StorageFactory",
    "Transition",
    "hookimpl",
    "hookspec",
]

hookspec = pluggy.HookspecMarker("jobkit")
hookimpl = pluggy.HookimplMarker("jobkit")


# -- registering --


@hookspec
def jobkit_workers() -> Iterable[type[Worker] | FunctionWorker[..., Any]] | None:
    """Give Worker classes and `@worker` functions.

    Runs when an app is made and when a plugin is added to it, in that thread. A name that another
    distribution gave first is reported and left out. To import workers only when needed, use the entry-point
    group `jobkit.workers` instead. Raising: refused. Since api 1.
    """


@hookspec
def jobkit_schedules(config: Config) -> Iterable[Recurring] | None:
    """Give recurring entries.

    Runs when an app's schedules are first asked for (a node starts, `jobkit cron`), in that thread. A key
    that another distribution gave first is reported and left out. Raising: isolated, the plugin's entries do
    not run. Since api 1.
    """


@hookspec
def jobkit_queues(config: Config) -> Mapping[str, QueueConfig | int] | None:
    """Give queues that every node of the app works on besides the configured ones, with their limits.

    Runs when a node starts without `queues=` of its own, in that thread. The configuration's word on a queue
    wins, then the first distribution's by name. Raising: isolated. Since api 1.
    """


@hookspec
def jobkit_services(app: Core, node: Node) -> Iterable[Service] | None:
    """Give the services that this node runs beside its jobs.

    Runs once per start of a node, before it claims, in the thread that starts it; keep state per node in what
    the ticks close over. Raising: isolated, the plugin's services do not run on this node. Since api 1.
    """


@hookspec
def jobkit_commands(group: click.Group) -> None:
    """Add commands to the `jobkit` command line, by `group.add_command` or `@group.command`.

    Runs when the command line starts, in the main thread, before arguments are parsed; import what is heavy
    inside the command. A name that is taken is left as it is. Raising: isolated. Since api 1.
    """


@hookspec
def jobkit_migrations() -> Iterable[Step] | None:
    """Give the migrations of the plugin's own tables, in order; never columns in jobkit's tables.

    Runs when tables are migrated or checked, in that thread. Versions are kept per plugin name. Raising:
    fails, for tables that are half known must not be migrated. Since api 1.
    """


# -- lifecycle --


@hookspec
def jobkit_configure(config: Config) -> None:
    """Look at the configuration; `config.plugin(name)` gives the plugin's own settings.

    Runs once per app, before any other hook of the plugin, in the thread that makes the app. The
    configuration cannot be changed. Raising: refused, so a plugin may reject settings it cannot work with.
    Since api 1.
    """


@hookspec
def jobkit_lifespan(app: Core) -> AbstractAsyncContextManager[Mapping[str, object]] | None:
    """Give an async context manager around the life of a node: open clients and pools, yield them by name.

    Entered on the node's event loop before it claims, and on the loop of each child of the process runner;
    left in reverse order after the last job has ended. The yielded mappings are merged into `job.resources`;
    a key that two plugins yield is an error. Raising on entry: fails, the node does not start. Raising on
    exit: isolated. Since api 1.
    """


@hookspec
def jobkit_node_started(node: Node) -> None:
    """See that a node is registered and claims.

    Runs once per start, in a thread of the node that may block. Raising: isolated. Since api 1.
    """


@hookspec
def jobkit_node_stopping(node: Node) -> None:
    """See that a node has begun to stop: it claims nothing any more, running jobs have their grace.

    Runs once per stop, in a thread of the node; time spent here is taken from the grace. Raising: isolated.
    Since api 1.
    """


# -- in the transaction --


@hookspec
def jobkit_inserted(conn: Connection, jobs: Sequence[InsertedJob]) -> None:
    """Write what must be true exactly when the jobs are: rows of a plugin's own tables.

    Runs inside the transaction of each insert, after the rows are written, in the thread that enqueues;
    duplicates are not among `jobs`. Do not commit. It costs one-statement inserts their autocommit, so
    implement it only to write. Raising: rolls back, the enqueue fails with that error. Since api 1.
    """


@hookspec
def jobkit_transitions(conn: Connection, transitions: Sequence[Transition]) -> None:
    """Write what must be true exactly when the jobs' states change.

    Runs inside the transaction of each batch of state changes, with those that landed, claims included
    (`available` to `executing`): on a database thread of a node, in a service's thread, or in the thread of an
    operator's action. It costs claims and records their autocommit, so implement it only to write. Do not
    commit. Raising: rolls back; a claim is tried again later, results of runs one by one without their details.
    Since api 1.
    """


# -- jobs --


@hookspec
def jobkit_job_inserting(job: NewJob) -> NewJob | None:
    """Change a job before it is inserted: return `job.tag(...)`, `job.with_meta(...)`, `job.replace(...)`.

    A fold: each implementation gets the previous one's result; None leaves it as it is. Runs in the thread
    that enqueues, before anything is written; it gets no connection. Raising: fails, the enqueue raises that
    error and writes nothing. Since api 1.
    """


@hookspec
def jobkit_around_job(
    job: JobInfo, worker: Worker, ctx: JobContext
) -> AbstractContextManager[object] | AbstractAsyncContextManager[object] | None:
    """Give a context manager around `perform`, or None for jobs that are none of the plugin's business.

    Runs for each run of a job, inside its timeout, where the job runs: on the event loop for `async def
    perform` (sync or async context managers), in its thread or child otherwise (sync ones only; an async one
    there is a failure of the job). `worker` is the decoded value. The first plugin asked is the outermost.
    After the body `ctx.outcome` holds the outcome and may be set. An exception that the context suppresses
    stays a failure. Raising, here or in the context manager: the job fails with that error. Since api 1.
    """


@hookspec(firstresult=True)
def jobkit_backoff(worker: type[Worker], attempt: int, error: BaseException) -> timedelta | None:
    """Say how long to wait before the next attempt; the first answer that is not None wins.

    Asked only where the worker has no `backoff` of its own, on the node's event loop, after a failed attempt
    that leaves another; be quick. `error` is what was raised; where the run was in a child process, a
    stand-in with the same text. Raising, or an answer that is no delay: isolated, the next one is asked.
    Since api 1.
    """


@hookspec(firstresult=True)
def jobkit_runner(worker: type[Worker]) -> Literal["loop", "thread", "process"] | Runner | None:
    """Choose where a worker's jobs run; the first answer that is not None wins, None leaves the worker's own
    choice.

    Asked once per worker and node, when its first job is claimed, on the node's event loop. Around a Runner
    of the plugin's own, `jobkit_around_job` contexts are entered on the event loop. Raising: isolated, the
    next one is asked. Since api 1.
    """


@hookspec(firstresult=True)
def jobkit_redact(value: object, path: str, worker: str | None, kind: str) -> object | None:
    """Give a replacement for a value that may hold a secret; the first that is not None wins.

    Runs wherever text is stored or shown, in any thread, after the worker's declared secret paths and before
    the built-in rules, which still apply to the replacement: nothing can be un-redacted. `path` is dotted
    (`args.card.number`), `kind` is `args`, `meta`, `tags`, `error`, `log` or `audit`. Must be quick and
    write nothing. Raising: the value becomes `[redaction failed]`. Since api 1.
    """


@hookspec
def jobkit_event(event: Event) -> None:
    """Observe what happens: see `jobkit.events` for all events.

    Runs in whichever thread it happened, often on a node's event loop: be quick, hand slow work to a thread
    of your own. Raising: isolated. Since api 1.
    """


# -- administration --


@hookspec
def jobkit_authorize(actor: Actor, action: str, resource: Resource) -> bool | None:
    """Allow (True) or forbid (False) an action such as `jobs.retry`; None leaves it to the others.

    Any False wins; if all are None the role table decides on the web, and the command line allows. Asked by
    the service that acts, in its thread, before each page, action and operation. Raising: counts as False.
    Since api 1.
    """


@hookspec
def jobkit_row_scope(actor: Actor) -> object | None:
    """Limit which jobs an actor can see and act on: query text (`tag:team-a`) or a parsed query; None is no
    limit.

    All answers are combined by AND, into every list, count, completion, bulk action and look-up by id; what
    lies outside is not found. Asked once per request or command. Raising, or a query with problems: fails,
    nothing is shown. Since api 1.
    """


@hookspec
def jobkit_query_qualifiers() -> Iterable[Qualifier] | None:
    """Add words to the query language of command line and dashboard.

    Runs when an app's first query is parsed. A name that is taken is reported and left out. Raising:
    isolated. Since api 1.
    """


@hookspec
def jobkit_health_checks() -> Iterable[Check] | None:
    """Add checks to `jobkit doctor` and the overview.

    Runs when they are asked for, in that thread. A check that raises is itself a broken finding. Raising
    here: isolated. Since api 1.
    """


@hookspec
def jobkit_audit(event: AuditEvent) -> None:
    """Ship an operator's action elsewhere; it stands in the audit table already.

    Runs after the commit, in the thread that acted; denied and failed actions too. Raising: isolated. Since
    api 1.
    """


# -- backend --


@hookspec(firstresult=True)
def jobkit_storage(url: URL) -> StorageFactory | None:
    """Bring the storage for a kind of database; the first factory wins, None leaves the built-in arms.

    Asked once per app and dialect, with that engine's or connection's URL, in the thread that first needs it.
    What the factory makes implements `jobkit.storage.base.Storage`. Raising: fails. Since api 1.
    """
