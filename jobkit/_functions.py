"""Functions as workers: which parameters are args, and the class body that runs the function.

Invariant: each parameter is an arg or receives the job; a signature of which that cannot be said is refused.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from jobkit._definition import body_kind, check_arg_name
from jobkit._hints import annotations_of, defining_frame, resolve
from jobkit.errors import WorkerDefinitionError
from jobkit.jobs import JobInfo

__all__ = ["class_body"]

_REFUSED: Final[dict[object, str]] = {
    inspect.Parameter.VAR_POSITIONAL: "*{}: args are stored by name, so each needs a name of its own",
    inspect.Parameter.VAR_KEYWORD: "**{}: args are stored by name, so each must be declared",
    inspect.Parameter.POSITIONAL_ONLY: "{} is positional-only: args are stored and passed by name",
}


@dataclass(frozen=True, slots=True)
class _Signature:
    annotations: dict[str, object]
    defaults: dict[str, object]
    job: str | None  # the parameter that receives the job


def class_body(fn: Callable[..., object]) -> dict[str, object]:
    """The namespace of the Worker class that runs `fn`. Raises WorkerDefinitionError."""
    place = f"{getattr(fn, '__module__', '?')}.{getattr(fn, '__qualname__', repr(fn))}"
    body_kind(fn, place)
    place = f"{place} ({fn.__code__.co_filename}:{fn.__code__.co_firstlineno})"
    signature = _signature(fn, place)
    return {
        "__module__": fn.__module__,
        # Pickle finds the class as the attribute `worker` of the object that takes the function's place.
        "__qualname__": f"{fn.__qualname__}.worker",
        "__doc__": fn.__doc__,
        "__annotations__": signature.annotations,
        "__jobkit_fn__": staticmethod(fn),
        "perform": _perform(fn, tuple(signature.annotations), signature.job),
        **signature.defaults,
    }


def _perform(fn: Callable[..., Any], names: tuple[str, ...], job_name: str | None) -> Callable[..., object]:
    def arguments(self: object, job: JobInfo) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in names}
        if job_name is not None:
            values[job_name] = job
        return values

    if inspect.iscoroutinefunction(fn):

        async def perform_async(self: object, job: JobInfo) -> object:
            return await fn(**arguments(self, job))

        return perform_async

    def perform(self: object, job: JobInfo) -> object:
        return fn(**arguments(self, job))

    return perform


def _signature(fn: Callable[..., object], place: str) -> _Signature:
    parameters = inspect.signature(fn).parameters
    hints = _hints(fn, place)
    annotations: dict[str, object] = {}
    defaults: dict[str, object] = {}
    job: str | None = None
    for name, parameter in parameters.items():
        _check_parameter(parameter, place)
        if _receives_job(hints.get(name)):
            if job is not None:
                raise WorkerDefinitionError(f"{place}: two parameters, {job} and {name}, ask for the job")
            job = name
            continue
        check_arg_name(name, place)
        annotations[name] = hints.get(name, Any)
        defaults.update(_default(parameter))
    return _Signature(annotations, defaults, job)


def _hints(fn: Callable[..., object], place: str) -> dict[str, object]:
    frame = defining_frame(fn.__module__)
    outer: Mapping[str, object] = {} if frame is None else frame.f_locals
    written = {name: hint for name, hint in annotations_of(fn).items() if name != "return"}
    try:
        return resolve(written, fn.__module__, outer, {})
    except Exception as error:
        raise WorkerDefinitionError(f"{place}: an annotation is no type: {error}") from error


def _check_parameter(parameter: inspect.Parameter, place: str) -> None:
    refused = _REFUSED.get(parameter.kind)
    if refused is not None:
        raise WorkerDefinitionError(f"{place}: {refused.format(parameter.name)}")
    if parameter.name in ("self", "cls") and parameter.annotation is parameter.empty:
        raise WorkerDefinitionError(f"{place}: a method cannot be a worker; subclass Worker instead")


def _receives_job(hint: object) -> bool:
    if isinstance(hint, str):  # imported under TYPE_CHECKING only
        return hint == "JobInfo" or hint.endswith(".JobInfo")
    return hint is JobInfo


def _default(parameter: inspect.Parameter) -> dict[str, object]:
    keyword = parameter.kind is inspect.Parameter.KEYWORD_ONLY
    if parameter.default is parameter.empty:
        return {parameter.name: dataclasses.field(kw_only=True)} if keyword else {}
    if getattr(type(parameter.default), "__hash__", None) is not None:
        return {parameter.name: dataclasses.field(default=parameter.default, kw_only=keyword)}
    # A list or dict: each value gets its own, also where calls of the function would share it.
    fresh = functools.partial(copy.deepcopy, parameter.default)
    return {parameter.name: dataclasses.field(default_factory=fresh, kw_only=keyword)}
