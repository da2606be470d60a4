"""What a worker's definition must be, checked while its module is imported.

Invariant: a definition that passes here can be enqueued, stored and run; one that does not names its place.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, cast

from jobkit._hints import annotations_of, defining_frame, resolve, unresolved
from jobkit._names import check_name, clamped, snake_case
from jobkit.errors import WorkerDefinitionError
from jobkit.jobs import MAX_ATTEMPTS, MAX_PRIORITY, Unique
from jobkit.outcomes import MAX_DELAY

__all__ = [
    "RUNNERS",
    "WorkerConfig",
    "WorkerOptions",
    "arg_of",
    "body_kind",
    "config_of",
    "make_dataclass",
    "place_of",
    "settle_annotations",
]

RUNNERS: Final = ("loop", "thread", "process")
PUBLIC: Final = frozenset({"perform", "backoff", "job"})
"""The public members of a worker; no arg may take their names."""

_OURS: Final = ("__init__", "__eq__", "__slots__", "__setattr__", "__delattr__", "__init_subclass__")


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """A worker's settings as they were given, not yet checked."""

    name: str | None
    queue: str
    max_attempts: int
    priority: int
    timeout: timedelta | None
    unique: Unique | None
    secret: tuple[str, ...]
    runner: str | None


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """A worker's settings, checked: `cls.__jobkit__`.

    timeout: None = no limit. runner: "loop", "thread" or "process". place: module, name, file and line.
    is_async: `perform` is a coroutine function. has_backoff: the worker brings a backoff of its own.
    """

    name: str
    queue: str
    max_attempts: int
    priority: int
    timeout: timedelta | None
    unique: Unique | None
    secret: tuple[str, ...]
    runner: str
    module: str
    qualname: str
    place: str
    is_async: bool
    has_backoff: bool


def config_of(cls: type, base: type, options: WorkerOptions, place: str) -> WorkerConfig:
    """The checked settings of `cls`, a dataclass by now; `base` is Worker itself."""
    error = WorkerDefinitionError
    is_async = _is_async(cls)
    return WorkerConfig(
        name=check_name(options.name or snake_case(cls.__name__), f"{place}: name", error),
        queue=check_name(options.queue, f"{place}: queue", error),
        max_attempts=clamped(options.max_attempts, 1, MAX_ATTEMPTS, f"{place}: max_attempts", error),
        priority=clamped(options.priority, 0, MAX_PRIORITY, f"{place}: priority", error),
        timeout=_checked_timeout(options.timeout, place),
        unique=_checked_unique(options.unique, cls, place),
        secret=_checked_secret(options.secret, cls, place),
        runner=_checked_runner(options.runner, is_async, place),
        module=cls.__module__,
        qualname=cls.__qualname__,
        place=place,
        is_async=is_async,
        has_backoff=inspect.getattr_static(cls, "backoff") is not inspect.getattr_static(base, "backoff"),
    )


def place_of(cls: type, fn: Callable[..., object] | None) -> str:
    """Where a worker is defined: `module.name (file:line)`."""
    where = f"{cls.__module__}.{cls.__qualname__ if fn is None else fn.__qualname__}"
    code = getattr(fn, "__code__", None)
    if code is not None:
        return f"{where} ({code.co_filename}:{code.co_firstlineno})"
    frame = defining_frame(cls.__module__)
    return where if frame is None else f"{where} ({frame.f_code.co_filename}:{frame.f_lineno})"


def make_dataclass(cls: type, place: str) -> None:
    """Turn `cls` into a frozen dataclass whose fields are its args. Raises WorkerDefinitionError."""
    _check_body(cls, place)
    annotations = annotations_of(cls)
    for name in annotations:
        check_arg_name(name, place)
    if annotations:
        frame = defining_frame(cls.__module__)
        outer: Mapping[str, object] = {} if frame is None else frame.f_locals
        cls.__annotations__ = _resolved(annotations, cls, outer, place)
    try:
        dataclass(frozen=True, repr=False)(cls)
    except (TypeError, ValueError) as error:
        raise WorkerDefinitionError(f"{place}: {error}") from error
    _check_fields(cls, place)


def _resolved(
    annotations: Mapping[str, object], cls: type, outer: Mapping[str, object], place: str
) -> dict[str, object]:
    try:
        return resolve(annotations, cls.__module__, outer, vars(cls))
    except Exception as error:
        raise WorkerDefinitionError(f"{place}: an annotation is no type: {error}") from error


def settle_annotations(cls: type) -> None:
    """Resolve what could not be while the class was defined. Raises NameError if that still fails."""
    for base in filter(dataclasses.is_dataclass, cls.__mro__):
        annotations = annotations_of(base)
        if not any(map(unresolved, annotations.values())):
            continue
        settled = resolve(annotations, base.__module__, {}, vars(base))
        for name, hint in settled.items():
            if unresolved(hint):
                raise NameError(f"annotation {hint!r} of arg {name!r}")
        base.__annotations__ = settled
        for field in dataclasses.fields(base):
            field.type = settled.get(field.name, field.type)


def check_arg_name(name: str, place: str) -> None:
    """Refuse the few names that args cannot have."""
    if name in PUBLIC or (name.startswith("__") and name.endswith("__")):
        allowed = ", ".join(sorted(PUBLIC))
        raise WorkerDefinitionError(f"{place}: no arg may be called {name!r} (nor {allowed}, nor __dunder__)")


def _check_body(cls: type, place: str) -> None:
    for name in _OURS:
        if name in vars(cls):
            raise WorkerDefinitionError(
                f"{place}: a worker is a frozen dataclass already and cannot define {name}; "
                "its annotated fields are its args, and __post_init__ may check them"
            )
    if "perform" in vars(cls):
        body_kind(vars(cls)["perform"], place)
        _check_call(vars(cls)["perform"], 2, "perform(self, job)", place)
    if "backoff" in vars(cls):
        _check_backoff(cls, place)


def body_kind(body: object, place: str) -> None:
    """Refuse a body that is not a plain or async function: calling it would do no work."""
    if not inspect.isfunction(body):
        raise WorkerDefinitionError(f"{place}: a job's body is a function, not {type(body).__name__}")
    inner = inspect.unwrap(body)
    if any(inspect.isgeneratorfunction(f) or inspect.isasyncgenfunction(f) for f in (body, inner)):
        raise WorkerDefinitionError(f"{place}: a job's body contains yield, so calling it would do nothing")


def _check_backoff(cls: type, place: str) -> None:
    if not isinstance(vars(cls)["backoff"], classmethod | staticmethod):
        raise WorkerDefinitionError(f"{place}: backoff is a classmethod: backoff(cls, attempt) -> timedelta")
    backoff = cast(Callable[..., object], getattr(cls, "backoff"))  # noqa: B009 - `type` has none
    if inspect.iscoroutinefunction(backoff) or inspect.isgeneratorfunction(backoff):
        raise WorkerDefinitionError(f"{place}: backoff is a plain function")
    _check_call(backoff, 1, "backoff(cls, attempt)", place)


def _check_call(function: Callable[..., object], count: int, shape: str, place: str) -> None:
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError as error:
        raise WorkerDefinitionError(f"{place}: {shape} is expected: {error}") from None


def _check_fields(cls: type, place: str) -> None:
    for field in dataclasses.fields(cls):
        if not field.init or not field.compare:
            raise WorkerDefinitionError(f"{place}: arg {field.name!r} must keep init=True and compare=True")
    if any(isinstance(h, dataclasses.InitVar) or "InitVar" in str(h) for h in annotations_of(cls).values()):
        raise WorkerDefinitionError(f"{place}: an InitVar is not stored, so it cannot be an arg")


def _is_async(cls: type) -> bool:
    return inspect.iscoroutinefunction(getattr(cls, "perform", None))


def _checked_timeout(timeout: object, place: str) -> timedelta | None:
    if timeout is None:
        return None
    if not isinstance(timeout, timedelta):
        raise WorkerDefinitionError(f"{place}: timeout is a timedelta or None, not {type(timeout).__name__}")
    if not timedelta(0) < timeout <= MAX_DELAY:
        raise WorkerDefinitionError(
            f"{place}: timeout lies above 0 and at most at 100 years; None = no limit"
        )
    return timeout


def _checked_unique(unique: object, cls: type, place: str) -> Unique | None:
    if unique is None:
        return None
    if not isinstance(unique, Unique):
        raise WorkerDefinitionError(f"{place}: unique is a Unique or None, not {type(unique).__name__}")
    for key in unique.keys or ():
        _check_field(key, cls, f"{place}: unique")
    return unique


def _checked_secret(secret: object, cls: type, place: str) -> tuple[str, ...]:
    if isinstance(secret, str) or not isinstance(secret, tuple | list):
        raise WorkerDefinitionError(f"{place}: secret is a tuple of paths, as ('card.number',)")
    for path in secret:
        if not isinstance(path, str) or not all(path.split(".")):
            raise WorkerDefinitionError(f"{place}: secret: {path!r} is no path, as 'card.number'")
        _check_field(arg_of(path), cls, f"{place}: secret")
    return tuple(secret)


def arg_of(path: str) -> str:
    """The arg that a path begins with: `cards` of `cards[0].number`."""
    return path.partition(".")[0].partition("[")[0]


def _check_field(name: str, cls: type, what: str) -> None:
    names = [field.name for field in dataclasses.fields(cls)]
    if name not in names:
        raise WorkerDefinitionError(f"{what}: {name!r} is no arg; args are {', '.join(names) or 'none'}")


def _checked_runner(runner: object, is_async: bool, place: str) -> str:
    own = "loop" if is_async else "thread"
    if runner is None:
        return own
    if runner not in RUNNERS:
        raise WorkerDefinitionError(f"{place}: runner is one of {', '.join(RUNNERS)}, not {runner!r}")
    if runner not in (own, "process"):
        kind = "an async body runs on the loop" if is_async else "a plain body runs in a thread"
        raise WorkerDefinitionError(f"{place}: {kind}, so runner is None, {own!r} or 'process'")
    return str(runner)
