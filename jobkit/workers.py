"""Workers: what a job is made of and what runs it.

Invariant: a worker's instance is a frozen value, and its args are all that is stored of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import random
import types
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import (
    Any,
    ClassVar,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    TypeVar,
    Unpack,
    cast,
    dataclass_transform,
    overload,
)

from jobkit._codec import Codec
from jobkit._definition import (
    WorkerConfig,
    WorkerOptions,
    arg_of,
    config_of,
    make_dataclass,
    place_of,
    settle_annotations,
)
from jobkit._functions import class_body
from jobkit.errors import WorkerDefinitionError
from jobkit.jobs import JobInfo, JobOptions, NewJob, Unique, checked_options
from jobkit.outcomes import MAX_DELAY, Outcome, checked_delay

__all__ = [
    "DEFAULT_TIMEOUT",
    "FunctionWorker",
    "Worker",
    "WorkerConfig",
    "arg_names",
    "backoff_of",
    "decode",
    "default_backoff",
    "encode",
    "worker",
    "worker_of",
]

DEFAULT_TIMEOUT: Final = timedelta(seconds=300)
MAX_BACKOFF: Final = timedelta(days=7)

P = ParamSpec("P")
R = TypeVar("R")
W = TypeVar("W", bound="Worker")


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
class Worker:
    """Base of all workers. Annotated fields of a subclass are its args; `perform` does the work.

    Class keywords (they are not inherited):
    name: permanent, since rows refer to it; the class name in snake_case if left out. queue: "default".
    max_attempts: runs before the job is discarded, 20. priority: 0 (first) to 9.
    timeout: of one run, 300 s; None = no limit. unique: uniqueness of every job of this worker.
    secret: paths of args that are never shown, as ("card.number",). runner: None, or "process" for a child
    process that can be killed.

    A definition that could not run raises WorkerDefinitionError while its module is imported.
    """

    __jobkit__: ClassVar[WorkerConfig]

    def __init_subclass__(
        cls,
        *,
        name: str | None = None,
        queue: str = "default",
        max_attempts: int = 20,
        priority: int = 0,
        timeout: timedelta | None = DEFAULT_TIMEOUT,
        unique: Unique | None = None,
        secret: tuple[str, ...] = (),
        runner: str | None = None,
    ) -> None:
        super().__init_subclass__()
        options = WorkerOptions(name, queue, max_attempts, priority, timeout, unique, secret, runner)
        place = place_of(cls, getattr(cls, "__jobkit_fn__", None) if "__jobkit_fn__" in vars(cls) else None)
        make_dataclass(cls, place)
        cls.__jobkit__ = config_of(cls, Worker, options, place)
        if _runs(cls):
            with contextlib.suppress(NameError):  # of a type that the module defines further down
                _make_codec(cls)

    def perform(self, job: JobInfo) -> Outcome | Awaitable[Outcome | None] | None:
        """Do the work: `async def` runs on the event loop, `def` in a thread.

        None means done, so does `Done()`; `Snooze`, `Cancel` and `Discard` may be returned or raised. Any
        other exception is a failure, which is tried again.
        """
        raise NotImplementedError

    @classmethod
    def backoff(cls, attempt: int) -> timedelta:
        """How long to wait after the failure of attempt `attempt` (from 1)."""
        return default_backoff(attempt, random.random())

    def job(self, **options: Unpack[JobOptions]) -> NewJob:
        """These args as a job that is not enqueued yet, with options. Raises ArgsError."""
        config = self.__jobkit__
        settings = {
            "queue": config.queue,
            "priority": config.priority,
            "max_attempts": config.max_attempts,
            "unique": config.unique,
            **checked_options(options),
        }
        args = encode(self)
        return NewJob(worker=config.name, args=args, secret=config.secret, worker_type=type(self), **settings)

    def __repr__(self) -> str:
        config = self.__jobkit__
        hidden = {arg_of(path) for path in config.secret}
        values = (
            f"{field.name}={'[redacted]' if field.name in hidden else repr(getattr(self, field.name))}"
            for field in dataclasses.fields(cast(Any, self))
        )
        return f"{type(self).__name__}({', '.join(values)})"


class FunctionWorker(Generic[P, R]):
    """What `@worker` makes of a function: called like it, it gives a job value.

    fn: the function itself. worker: its Worker class.
    """

    fn: Callable[..., R]
    worker: type[Worker]

    def __init__(self, fn: Callable[..., R], make_class: Callable[[dict[str, object]], type[Worker]]) -> None:
        self.fn = fn
        self.worker = make_class(class_body(fn))
        functools.update_wrapper(self, fn)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Worker:
        """A job value: the function's args, not yet enqueued."""
        make: Callable[..., Worker] = self.worker
        return make(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<worker {self.worker.__jobkit__.name!r}: {self.worker.__jobkit__.place}>"


class _Decorator:
    """`@worker(...)` with its settings given."""

    def __init__(self, **settings: Any) -> None:
        self._settings = settings

    @overload
    def __call__(self, fn: Callable[Concatenate[JobInfo, P], R], /) -> FunctionWorker[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> FunctionWorker[P, R]: ...
    def __call__(self, fn: Callable[..., R], /) -> FunctionWorker[..., R]:
        def make_class(body: dict[str, object]) -> type[Worker]:
            made = types.new_class(fn.__name__, (Worker,), self._settings, lambda names: names.update(body))
            return cast(type[Worker], made)

        return FunctionWorker(fn, make_class)


@overload
def worker(fn: Callable[Concatenate[JobInfo, P], R], /) -> FunctionWorker[P, R]: ...
@overload
def worker(fn: Callable[P, R], /) -> FunctionWorker[P, R]: ...
@overload
def worker(
    *,
    name: str | None = None,
    queue: str = "default",
    max_attempts: int = 20,
    priority: int = 0,
    timeout: timedelta | None = DEFAULT_TIMEOUT,
    unique: Unique | None = None,
    secret: tuple[str, ...] = (),
    runner: str | None = None,
) -> _Decorator: ...
def worker(fn: Callable[..., Any] | None = None, /, **settings: Any) -> FunctionWorker[..., Any] | _Decorator:
    """Make a function a worker; settings as those of `Worker`.

    Its parameters are the args, except one annotated `JobInfo`, which receives the job (put it first, so
    that type checkers know that callers leave it out). The result is called like the function to make a job
    value; `.fn` is the function, `.worker` its Worker class. Raises WorkerDefinitionError for a signature
    that args cannot have.
    """
    decorator = _Decorator(**settings)
    return decorator if fn is None else decorator(fn)


def worker_of(thing: type[Worker] | FunctionWorker[..., Any]) -> type[Worker]:
    """The Worker class of a class or an `@worker` function, ready to run. Raises WorkerDefinitionError."""
    cls = thing.worker if isinstance(thing, FunctionWorker) else thing
    if not isinstance(cls, type) or not issubclass(cls, Worker) or cls is Worker:
        raise WorkerDefinitionError(f"{thing!r} is no worker: a subclass of Worker or an @worker function is")
    _codec(cls)
    return cls


def arg_names(cls: type[Worker]) -> tuple[str, ...]:
    """The names of a worker's args, in the order of their definition."""
    names: tuple[str, ...] | None = cls.__dict__.get("__jobkit_args__")
    if names is None:
        names = tuple(field.name for field in dataclasses.fields(cast(Any, cls)))
        setattr(cls, "__jobkit_args__", names)  # noqa: B010 - no part of the class that users see
    return names


def encode(instance: Worker) -> str:
    """The args of a worker's instance as compact JSON text. Raises ArgsError for what does not survive
    JSON.
    """
    return _codec(type(instance)).encode(instance)


def decode(cls: type[W], text: str | bytes) -> W:
    """An instance of `cls` from stored args: missing ones take their defaults, unknown ones are ignored.

    Raises ArgsError.
    """
    return cast(W, _codec(cls).decode(text))


def default_backoff(attempt: int, fraction: float) -> timedelta:
    """attempt**4 + 15 + fraction * 30 * attempt seconds, capped at 7 days; `fraction` is random in [0, 1)."""
    bounded = min(max(attempt, 0), 1000)
    seconds = bounded**4 + 15 + min(max(fraction, 0.0), 1.0) * 30 * bounded
    return min(timedelta(seconds=seconds), MAX_BACKOFF)


def backoff_of(cls: type[Worker], attempt: int, fraction: float) -> timedelta:
    """The delay after attempt `attempt`: the worker's own backoff, brought into 0..100 years, else the
    default.

    Raises what the worker's backoff raises, and TypeError if it gives neither a timedelta nor seconds.
    """
    if not cls.__jobkit__.has_backoff:
        return default_backoff(attempt, fraction)
    delay: object = cls.backoff(attempt)
    if isinstance(delay, timedelta):
        return min(max(delay, timedelta(0)), MAX_DELAY)
    if type(delay) in (int, float):
        delay = min(max(cast(float, delay), 0), MAX_DELAY.total_seconds())
    return checked_delay(delay, what=f"{cls.__jobkit__.name}: backoff")


def _runs(cls: type[Worker]) -> bool:
    return cls.perform is not Worker.perform


def _codec(cls: type[Worker]) -> Codec[Worker]:
    codec: Codec[Worker] | None = cls.__dict__.get("__jobkit_codec__")
    return codec if codec is not None else _late_codec(cls)


def _late_codec(cls: type[Worker]) -> Codec[Worker]:
    place = cls.__jobkit__.place
    if not _runs(cls):
        raise WorkerDefinitionError(f"{place}: perform is missing, so its jobs could not run")
    try:
        return _make_codec(cls)
    except NameError as error:
        raise WorkerDefinitionError(
            f"{place}: the types of its args cannot be resolved: {error}; "
            "import them when the module runs (not under TYPE_CHECKING) and define them at module level"
        ) from None


def _make_codec(cls: type[Worker]) -> Codec[Worker]:
    settle_annotations(cls)
    codec: Codec[Worker] = Codec(cls, cls.__jobkit__.name, cls.__jobkit__.place)
    setattr(cls, "__jobkit_codec__", codec)  # noqa: B010 - no part of the class that users see
    return codec
