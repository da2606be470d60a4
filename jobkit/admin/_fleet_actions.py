"""Actions on queues, recurring entries and nodes.

Invariant: each writes one row under a lock together with its audit, and says what was before and after; the
nodes learn of it at their next beat.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from jobkit._names import check_name
from jobkit.admin._desk import Desk, Draft
from jobkit.admin._fleet_reads import Fleet, QueueRow, fleet_of, is_stale, queue_row
from jobkit.admin.errors import Conflict, Invalid, NotFound
from jobkit.admin.results import CronChange, NodeChange, QueueChange
from jobkit.hookspecs import Resource
from jobkit.inserting import rows_of
from jobkit.jobs import JobRow, JobState, NewJob
from jobkit.storage.operator import (
    lock_entry,
    lock_node,
    lock_queue,
    set_entry,
    set_queue,
    set_wanted,
)
from jobkit.workers import Worker

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from jobkit.schedules import Recurring

__all__ = ["FleetActions"]

MAX_LIMIT: Final = 10_000
NodeCommand = Literal["pause", "resume", "drain", "forget"]
_NODE_PERMISSIONS: Final[Mapping[str, str]] = {
    "pause": "nodes.pause",
    "resume": "nodes.pause",
    "drain": "nodes.drain",
    "forget": "nodes.forget",
}
_WANTED: Final[Mapping[str, dict[str, bool]]] = {
    "pause": {"paused": True},
    "resume": {"paused": False, "drain": False},
    "drain": {"drain": True},
}
_NODE_TEXT: Final[Mapping[str, str]] = {
    "pause": "claims nothing from its next beat on",
    "resume": "works again from its next beat on",
    "drain": "finishes its jobs, claims no more, and stops",
    "forget": "is forgotten; any other node rescues the jobs that it left",
}


class FleetActions:
    """See `Actions`, whose methods these are."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._app = desk.app

    # -- queues

    def pause_queue(self, name: str, until: datetime | None, reason: str) -> QueueChange:
        """Paused, perhaps until a time."""
        now = self._desk.context.now
        if until is not None and until.utcoffset() is None:
            raise Invalid("the time needs a zone")
        if until is not None and until <= now:
            raise Invalid("the time until which to pause lies in the past")
        values = {
            "paused": True,
            "paused_until": until,
            "reason": self._app.redactor.text(reason, kind="audit") or None,
            "paused_by": self._desk.actor.id,
        }
        return self._change_queue("queues.pause", name, values, reason)

    def resume_queue(self, name: str, reason: str) -> QueueChange:
        """Not paused."""
        values = {"paused": False, "paused_until": None, "reason": None, "paused_by": None}
        return self._change_queue("queues.resume", name, values, reason)

    def scale_queue(self, name: str, limit: int | None, node: str | None, reason: str) -> QueueChange:
        """Another limit, on one node or all."""
        _check_limit(limit)
        return self._change_queue("queues.scale", name, {}, reason, scale=(limit, node))

    def preview_scale(self, name: str, limit: int | None, node: str | None) -> QueueChange:
        """What `scale_queue` would do."""
        _check_limit(limit)
        with self._desk.context.reading() as conn:
            fleet = fleet_of(self._desk.context, conn)
            before = self._known(fleet, name)
            return self._told(fleet, before, _scaled(before, fleet, limit, node))

    def _change_queue(
        self,
        action: str,
        name: str,
        values: Mapping[str, Any],
        reason: str,
        scale: tuple[int | None, str | None] | None = None,
    ) -> QueueChange:
        draft = Draft(action, "queue", [name], reason)
        self._desk.require(action, Resource("queue", name, queue=name), draft)

        def work(conn: Connection) -> QueueChange:
            row = lock_queue(conn, self._app.tables, name)
            fleet = fleet_of(self._desk.context, conn)
            before = self._known(fleet, name) if row is None else queue_row(row)
            written = dict(values)
            if scale is not None:
                scaled = _scaled(before, fleet, *scale)
                written["limit_override"] = scaled.limit_override
                written["node_limits"] = json.dumps(dict(scaled.node_limits))
            set_queue(conn, self._app.tables, name, written, self._desk.context.now)
            after = lock_queue(conn, self._app.tables, name)
            assert after is not None
            change = self._told(fleet, before, queue_row(after))
            draft.before, draft.after = _differences(change.before, change.after)
            return change

        change = self._desk.write(draft, work)
        if action == "queues.resume":
            self._desk.wake([name])
        return change

    def _known(self, fleet: Fleet, name: str) -> QueueRow:
        """The queue's row, or a fresh one where a node works on it. Raises NotFound."""
        if name in fleet.queues:
            return fleet.queues[name]
        if any(name in node.queues for node in fleet.nodes) or name in self._app.registry.queues():
            return QueueRow(check_name(name, "queue", Invalid))
        raise NotFound(f"there is no queue {name!r}")

    def _told(self, fleet: Fleet, before: QueueRow, after: QueueRow) -> QueueChange:
        had, has = _settings(before), _settings(after)
        capacity = _capacity(fleet, before), _capacity(fleet, after)
        text = f"queue {after.name} " + _change_in_words(before, after, fleet)
        if capacity[0] != capacity[1]:
            text += f"; of its jobs {capacity[1]} may run at once now, {capacity[0]} before"
        return QueueChange(after.name, had, has, *capacity, text)

    # -- cron

    def run_cron(self, key: str, reason: str) -> CronChange:
        """One run besides the schedule."""
        draft = Draft("cron.run", "cron", [key], reason)
        self._desk.require("cron.run", Resource("cron", key), draft)
        row = self._manual_row(key)

        def work(conn: Connection) -> CronChange:
            inserted = self._app.storage.insert(conn, [row])[0]
            draft.after = {"job": inserted.id, "duplicate": inserted.duplicate}
            what = "waits already as" if inserted.duplicate else "is enqueued as"
            text = f"{key} {what} job {inserted.id}"
            return CronChange(key, text, inserted.id, inserted.duplicate)

        change = self._desk.write(draft, work)
        if row.state is JobState.AVAILABLE:
            self._desk.wake([row.queue])
        return change

    def _manual_row(self, key: str) -> JobRow:
        recurring = self._recurring(key)
        source = recurring.job
        try:
            made = source if isinstance(source, Worker | NewJob) else source()
            job = made.job() if isinstance(made, Worker) else made
            return rows_of(self._app, [job.tag("manual")], system_meta={"cron": key})[0]
        except Exception as error:
            told = self._app.redactor.text(f"{type(error).__name__}: {error}", kind="error")
            raise Invalid(f"the job of {key} could not be made: {told}") from error

    def _recurring(self, key: str) -> Recurring:
        for entry in self._app.registry.schedules():
            if entry.recurring.key == key:
                return entry.recurring
        with self._desk.context.reading() as conn:
            if all(row.key != key for row in self._app.storage.entries(conn)):
                raise NotFound(f"there is no recurring entry {key!r}")
        raise Invalid(f"this process does not know the code of {key}; name the app that declares it")

    def pause_cron(self, key: str, reason: str) -> CronChange:
        """No runs."""
        values = {
            "paused": True,
            "reason": self._app.redactor.text(reason, kind="audit") or None,
            "paused_by": self._desk.actor.id,
        }
        return self._change_entry(key, values, reason, "is paused")

    def resume_cron(self, key: str, reason: str) -> CronChange:
        """Runs again, from now on."""
        since = self._desk.context.now
        values = {"paused": False, "reason": None, "paused_by": None, "since": since}
        return self._change_entry(key, values, reason, "runs again from now on")

    def _change_entry(self, key: str, values: Mapping[str, Any], reason: str, done: str) -> CronChange:
        draft = Draft("cron.pause", "cron", [key], reason)
        self._desk.require("cron.pause", Resource("cron", key), draft)

        def work(conn: Connection) -> CronChange:
            row = lock_entry(conn, self._app.tables, key)
            if row is None:
                raise NotFound(f"there is no recurring entry {key!r}")
            if bool(row["paused"]) is values["paused"]:
                state = "is paused already" if row["paused"] else "is not paused"
                draft.result = "conflict"
                return CronChange(key, f"{key} {state}; nothing done")
            set_entry(conn, self._app.tables, key, values, self._desk.context.now)
            draft.before, draft.after = {"paused": bool(row["paused"])}, {"paused": values["paused"]}
            return CronChange(key, f"{key} {done}")

        return self._desk.write(draft, work)

    # -- nodes

    def command_node(self, node: str, command: NodeCommand, reason: str) -> NodeChange:
        """What the node reads at its next beat, or the end of its row."""
        if command not in _NODE_PERMISSIONS:
            raise Invalid(f"{command!r} is no command; there are {', '.join(_NODE_PERMISSIONS)}")
        permission = _NODE_PERMISSIONS[command]
        draft = Draft(permission, "node", [node], reason)
        self._desk.require(permission, Resource("node", node), draft)

        def work(conn: Connection) -> NodeChange:
            row = lock_node(conn, self._app.tables, node)
            if row is None:
                raise NotFound(f"there is no node {node!r}")
            draft.after = {"command": command}
            self._command(conn, node, command, row)
            return NodeChange(node, f"node {node} {_NODE_TEXT[command]}")

        return self._desk.write(draft, work)

    def _command(self, conn: Connection, node: str, command: str, row: Mapping[str, Any]) -> None:
        if command != "forget":
            before = json.loads(row["wanted"])
            wanted = before if isinstance(before, dict) else {}
            set_wanted(conn, self._app.tables, node, {**wanted, **_WANTED[command]})
            return
        for found in self._app.storage.nodes(conn):
            if found.node == node and not is_stale(
                found, self._desk.context.now, self._app.config.dead_after
            ):
                raise Conflict(f"node {node} is alive; drain it first")
        self._app.storage.remove_node(conn, node)


def _check_limit(limit: int | None) -> None:
    if limit is None:
        return
    if isinstance(limit, bool) or not isinstance(limit, int) or not 0 <= limit <= MAX_LIMIT:
        raise Invalid(f"a limit is a whole number from 0 to {MAX_LIMIT:,}, not {limit!r}")


def _scaled(row: QueueRow, fleet: Fleet, limit: int | None, node: str | None) -> QueueRow:
    """The row with another limit. On all nodes it replaces what was said for single ones."""
    paused = (row.name, row.paused, row.paused_until, row.reason, row.paused_by)
    if node is None:
        return QueueRow(*paused, limit, {})
    if all(found.node != node for found in fleet.nodes):
        raise NotFound(f"there is no node {node!r}")
    known = {found.node for found in fleet.nodes}
    limits = {name: n for name, n in row.node_limits.items() if name in known and name != node}
    return QueueRow(*paused, row.limit_override, limits if limit is None else {**limits, node: limit})


def _settings(row: QueueRow) -> dict[str, object]:
    return {
        "paused": row.paused,
        "paused_until": row.paused_until.isoformat() if row.paused_until else None,
        "reason": row.reason,
        "limit_override": row.limit_override,
        "node_limits": dict(row.node_limits),
    }


def _differences(
    before: Mapping[str, object], after: Mapping[str, object]
) -> tuple[dict[str, object], dict[str, object]]:
    changed = [name for name in after if before.get(name) != after[name]]
    return {name: before.get(name) for name in changed}, {name: after[name] for name in changed}


def _capacity(fleet: Fleet, row: QueueRow) -> int:
    """What live nodes may run of it at once."""
    if row.paused_at(fleet.now):
        return 0
    return sum(row.limit_on(node.node, node.queues[row.name]) for node in fleet.live(row.name))


def _change_in_words(before: QueueRow, after: QueueRow, fleet: Fleet) -> str:
    """`is paused until ...`, `has a limit of 5 on each node (was as configured)`."""
    if _settings(before) == _settings(after):
        return f"{_pause_in_words(after, fleet) if after.paused else 'is as it was'}; nothing changed"
    if (before.limit_override, before.node_limits) != (after.limit_override, after.node_limits):
        parts = []
        if before.limit_override != after.limit_override:
            was = _limit_in_words(before.limit_override)
            parts.append(f"limit {_limit_in_words(after.limit_override)} on each node (was {was})")
        for node in sorted({*before.node_limits, *after.node_limits}):
            old, new = before.node_limits.get(node), after.node_limits.get(node)
            if old != new:
                parts.append(f"limit {_limit_in_words(new)} on {node} (was {_limit_in_words(old)})")
        return "has the " + ", ".join(parts)
    was = "was paused" if before.paused else "was not paused"
    return f"{_pause_in_words(after, fleet) if after.paused else 'is resumed'} ({was})"


def _pause_in_words(row: QueueRow, fleet: Fleet) -> str:
    if row.paused_until is None:
        return "is paused"
    until = f"{row.paused_until:%Y-%m-%d %H:%M:%S} UTC"
    return f"is paused until {until}" if row.paused_at(fleet.now) else f"was paused until {until}"


def _limit_in_words(limit: int | None) -> str:
    return "as configured" if limit is None else str(limit)
