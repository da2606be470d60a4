"""What each action on a job is allowed from, and the words for where it is not.

Invariant: this table decides everywhere: for buttons, previews, single actions and bulk operations; the
statement that acts carries the same states in its condition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from jobkit.admin._context import Context
from jobkit.admin._facts import Facts
from jobkit.admin.results import JobAction
from jobkit.admin.views import ActionState
from jobkit.hookspecs import Resource
from jobkit.jobs import FINAL, INCOMPLETE, JobState

__all__ = ["RULES", "Rule", "action_states", "refusal", "resource_of"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One action: from which states, to which, under which permission, and what it does in words."""

    action: JobAction
    permission: str
    states: frozenset[JobState]
    to: JobState | None
    effect: str
    done: str
    """Of one job, after its id."""


RULES: Final[Mapping[str, Rule]] = {
    rule.action: rule
    for rule in (
        Rule(
            "retry",
            "jobs.retry",
            FINAL | {JobState.RETRYABLE},
            JobState.AVAILABLE,
            "becomes available now; its attempts and errors are kept",
            "is available again",
        ),
        Rule(
            "run_now",
            "jobs.run_now",
            frozenset({JobState.SCHEDULED, JobState.RETRYABLE}),
            JobState.AVAILABLE,
            "becomes available now",
            "is available now",
        ),
        Rule(
            "cancel",
            "jobs.cancel",
            INCOMPLETE,
            JobState.CANCELLED,
            "is cancelled; one that is executing is stopped at its node's next beat",
            "is cancelled",
        ),
        Rule(
            "delete",
            "jobs.delete",
            frozenset(JobState) - {JobState.EXECUTING},
            None,
            "is removed for good",
            "is deleted",
        ),
        Rule(
            "edit",
            "jobs.edit",
            INCOMPLETE - {JobState.EXECUTING},
            None,
            "is changed",
            "is changed",
        ),
    )
}


def refusal(action: str, state: JobState) -> str:
    """Why the state does not allow the action, as what the job is: `is already completed`."""
    if state is RULES[action].to or (action == "cancel" and state in FINAL):
        return f"is already {state.value}"
    if action == "run_now" and state in FINAL:
        return f"is {state.value}; retry it to run it again"
    if state is JobState.EXECUTING:
        return "is executing; cancel it first" if action in ("delete", "edit") else "is executing"
    return f"is {state.value}"


def resource_of(job: Facts) -> Resource:
    """The job as policies see it."""
    return Resource("job", str(job.id), job.queue, job.worker, job.tags)


def action_states(context: Context, job: Facts) -> dict[str, ActionState]:
    """Every action with whether the actor may, and whether the job's state allows it."""
    resource = resource_of(job)
    return {
        rule.action: ActionState(
            rule.action,
            context.may(rule.permission, resource),
            job.state in rule.states,
            "" if job.state in rule.states else f"job {job.id} {refusal(rule.action, job.state)}",
        )
        for rule in RULES.values()
    }
