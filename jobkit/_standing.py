"""Who is active: duplicates, replacements, requirements and what is disabled, decided before anyone is
registered.

Invariant: a pure decision over names; the same candidates and the same configuration give the same standing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jobkit._discovery import normalized
from jobkit._plugins import Candidate

__all__ = ["decide", "disable"]


def disable(candidates: Sequence[Candidate], names: Sequence[str]) -> None:
    """Take out the plugins of these names, and those that stand in for one of them."""
    for candidate in candidates:
        name, replaces = candidate.state.name, candidate.info.replaces
        if candidate.usable and name in names:
            candidate.refuse(f"disable names {name!r}", "disabled")
        elif candidate.usable and replaces in names:
            candidate.refuse(f"it stands in for {replaces!r}, which disable names", "disabled")


def decide(candidates: Sequence[Candidate], choices: Mapping[str, str]) -> list[Candidate]:
    """The active candidates, in order; the others' states say why not. `choices` is `replace.*`.

    Starts anew each time, so that what was missing before may have come since.
    """
    lacking: dict[Candidate, str] = {}
    while True:
        for candidate in candidates:
            candidate.take_back()
        for candidate, why in lacking.items():
            candidate.set_aside(why)
        found = _lacking(candidates)
        if not found:
            _refuse_same_objects(candidates)
            _refuse_shared_names(candidates)
            _refuse_rings(candidates)
            _replace(candidates, choices)
            found = _lacking(candidates)
        if not found:
            return [candidate for candidate in candidates if candidate.state.status == "active"]
        lacking.update(found)


def _refuse_same_objects(candidates: Sequence[Candidate]) -> None:
    seen: dict[int, Candidate] = {}
    for candidate in (c for c in candidates if c.usable):
        first = seen.setdefault(id(candidate.plugin), candidate)
        if first is not candidate:
            candidate.set_aside(f"{candidate.state.place} is active as {first.state.source}", "duplicate")


def _stands_in(candidate: Candidate) -> bool:
    return candidate.info.replaces == candidate.state.name


def _refuse_shared_names(candidates: Sequence[Candidate]) -> None:
    """The first of a name stays: built-ins, then distributions by name."""
    first: dict[str, Candidate] = {}
    for candidate in (c for c in candidates if c.usable and not _stands_in(c)):
        holder = first.setdefault(candidate.state.name, candidate)
        if holder is not candidate:
            candidate.set_aside(
                f"the name is taken by {holder.state.source}; to stand in for it, say so: "
                f"jobkit_plugin = PluginInfo(api=1, replaces={candidate.state.name!r})",
                "duplicate",
            )


def _originals(candidates: Sequence[Candidate], name: str) -> list[Candidate]:
    return [c for c in candidates if c.usable and c.state.name == name and not _stands_in(c)]


def _refuse_rings(candidates: Sequence[Candidate]) -> None:
    renaming = [c for c in candidates if c.usable and c.info.replaces and not _stands_in(c)]
    for candidate in [c for c in renaming if _replaces_itself(c, candidates)]:
        candidate.set_aside(f"it replaces {candidate.info.replaces!r}, which in turn replaces it")


def _replaces_itself(candidate: Candidate, candidates: Sequence[Candidate]) -> bool:
    passed: set[str] = set()
    here = candidate.info.replaces
    while here and here != candidate.state.name and here not in passed:
        passed.add(here)
        following = _originals(candidates, here)
        here = following[0].info.replaces if following else None
    return here == candidate.state.name


def _replace(candidates: Sequence[Candidate], choices: Mapping[str, str]) -> None:
    slots: dict[str, list[Candidate]] = {}
    for candidate in (c for c in candidates if c.usable and c.info.replaces):
        slots.setdefault(str(candidate.info.replaces), []).append(candidate)
    for slot, claimants in slots.items():
        winner = _winner(slot, claimants, choices.get(slot))
        for original in _originals(candidates, slot) if winner else ():
            original.state.status, original.state.replaced_by = (
                "replaced",
                winner.state.source if winner else None,
            )


def _winner(slot: str, claimants: list[Candidate], choice: str | None) -> Candidate | None:
    if choice is None and len(claimants) == 1:
        return claimants[0]
    chosen = [
        c
        for c in claimants
        if choice and normalized(c.state.distribution or c.state.name) == normalized(choice)
    ]
    winner = chosen[0] if len(chosen) == 1 else None
    for loser in (c for c in claimants if c is not winner):
        loser.set_aside(_why_not(slot, claimants, choice, winner))
    return winner


def _why_not(slot: str, claimants: list[Candidate], choice: str | None, winner: Candidate | None) -> str:
    if winner:
        return f"replace.{slot} decides for {winner.state.source}"
    if choice is not None:
        return f"replace.{slot} decides for {choice!r}, which this is not"
    names = " and ".join(c.state.source for c in claimants)
    example = claimants[0].state.distribution or "NAME"
    return f'{names} both replace {slot!r}, so neither does; decide with replace.{slot} = "{example}"'


def _lacking(candidates: Sequence[Candidate]) -> dict[Candidate, str]:
    """Those whose `requires` are not met, with the reason. A replaced plugin's name is there as long as its
    replacement is.
    """
    active = [c for c in candidates if c.state.status == "active"]
    present = {c.state.name for c in active} | {c.info.replaces for c in active if c.info.replaces}
    missing = {c: sorted(set(c.info.requires) - present) for c in active}
    return {
        c: f"it requires {', '.join(map(repr, names))}, which is not active"
        for c, names in missing.items()
        if names
    }
