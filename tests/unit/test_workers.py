"""Definitions: what is a worker, what is refused, and what its settings become."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import pickle
import sys
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import InitVar, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.errors import ArgsError, WorkerDefinitionError
from jobkit.jobs import JobInfo, Unique
from jobkit.outcomes import Done, Outcome
from jobkit.workers import (
    FunctionWorker,
    Worker,
    arg_names,
    backoff_of,
    decode,
    default_backoff,
    encode,
    worker,
    worker_of,
)
from tests.support.ids import stable

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForCheckers

NOW = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
JOB = JobInfo(
    id=1,
    worker="w",
    queue="default",
    attempt=1,
    max_attempts=20,
    priority=0,
    tags=(),
    meta={},
    inserted_at=NOW,
    scheduled_at=NOW,
    attempted_at=NOW,
)


def nothing(self: object, job: JobInfo) -> None: ...


class SendWelcomeEmail(Worker, queue="mailers", max_attempts=10, timeout=timedelta(minutes=2)):
    user_id: int
    card: Card | None = None  # defined further down

    async def perform(self, job: JobInfo) -> Outcome | None:
        return Done()


@dataclass(frozen=True)
class Card:
    number: str


class HTTPFetch(Worker, name="http/fetch-2.0", secret=("token", "card.number"), runner="process"):
    token: str
    card: Card
    retries: ClassVar[int] = 3

    def perform(self, job: JobInfo) -> None: ...

    @classmethod
    def backoff(cls, attempt: int) -> timedelta:
        return timedelta(seconds=-attempt)


@worker
def resize_image(image_id: int, width: int = 800) -> tuple[int, int]:
    """Make it small."""
    return image_id, width


@worker(queue="media")
async def fetch(job: JobInfo, url: str, *, headers: dict[str, str], tags: list[str] = []) -> list[object]:  # noqa: B006
    return [job, url, headers, tags]


# -- settings


def test_a_class_takes_its_name_from_its_own_in_snake_case() -> None:
    assert SendWelcomeEmail.__jobkit__.name == "send_welcome_email"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("HTTPServer", "http_server"), ("V2Send", "v2_send"), ("A", "a"), ("aB_C", "a_b_c")],
)
def test_names_become_snake_case(name: str, expected: str) -> None:
    made = types.new_class(name, (Worker,), {}, lambda ns: ns.update(perform=lambda self, job: None))
    assert made.__jobkit__.name == expected  # type: ignore[attr-defined]


def test_defaults_are_those_that_are_documented() -> None:
    config = resize_image.worker.__jobkit__
    assert (config.name, config.queue, config.max_attempts, config.priority) == (
        "resize_image",
        "default",
        20,
        0,
    )
    assert (config.timeout, config.unique, config.secret, config.runner) == (
        timedelta(seconds=300),
        None,
        (),
        "thread",
    )
    assert not config.is_async
    assert not config.has_backoff


def test_settings_are_kept_and_name_their_place() -> None:
    config = HTTPFetch.__jobkit__
    assert (config.name, config.runner, config.has_backoff) == ("http/fetch-2.0", "process", True)
    assert config.secret == ("token", "card.number")
    assert config.place.startswith(f"{__name__}.HTTPFetch ({__file__}:")
    assert SendWelcomeEmail.__jobkit__.runner == "loop"


def test_RT3_priority_and_max_attempts_are_clamped() -> None:
    class Far(Worker, priority=99, max_attempts=0):
        def perform(self, job: JobInfo) -> None: ...

    class Low(Worker, priority=-1, max_attempts=2**40):
        def perform(self, job: JobInfo) -> None: ...

    assert (Far.__jobkit__.priority, Far.__jobkit__.max_attempts) == (9, 1)
    assert (Low.__jobkit__.priority, Low.__jobkit__.max_attempts) == (0, 2**31 - 1)


BAD_OPTIONS: list[dict[str, Any]] = [
    {"priority": True},
    {"priority": 1.0},
    {"priority": float("nan")},
    {"max_attempts": "5"},
    {"max_attempts": None},
    {"queue": "a b"},
    {"queue": ""},
    {"queue": "x" * 129},
    {"queue": None},
    {"name": "näme"},
    {"name": "a\n"},
    {"timeout": 5},
    {"timeout": timedelta(0)},
    {"timeout": timedelta(days=-1)},
    {"timeout": timedelta(days=40_000)},
    {"unique": True},
    {"unique": Unique.args("nope")},
    {"secret": "user_id"},
    {"secret": ("nope",)},
    {"secret": ("user_id.",)},
    {"secret": (1,)},
    {"runner": "fork"},
    {"runner": "loop"},
]


@pytest.mark.parametrize("options", BAD_OPTIONS, ids=stable)
def test_RT3_wrong_settings_are_refused_at_definition_naming_the_place(options: dict[str, Any]) -> None:
    with pytest.raises(WorkerDefinitionError, match=r"Bad \(.*test_workers\.py"):

        class Bad(Worker, **options):
            user_id: int

            def perform(self, job: JobInfo) -> None: ...


def test_a_misspelt_setting_is_refused() -> None:
    with pytest.raises(TypeError, match="queu"):

        class Bad(Worker, queu="x"):  # type: ignore[call-arg]
            def perform(self, job: JobInfo) -> None: ...

    with pytest.raises(TypeError, match="queu"):
        worker(queu="x")(lambda: None)  # type: ignore[call-overload]


def test_an_async_body_cannot_run_in_a_thread() -> None:
    with pytest.raises(WorkerDefinitionError, match="on the loop"):

        @worker(runner="thread")
        async def body() -> None: ...


# -- values


def test_workers_are_frozen_values_with_equality() -> None:
    first = SendWelcomeEmail(user_id=1)
    assert first == SendWelcomeEmail(1)
    assert first != SendWelcomeEmail(2)
    assert hash(first) == hash(SendWelcomeEmail(1))
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.user_id = 2  # type: ignore[misc]


def test_a_repr_hides_what_is_secret() -> None:
    assert repr(HTTPFetch("tok", Card("4"))) == "HTTPFetch(token=[redacted], card=[redacted])"
    assert "tok" not in repr(HTTPFetch("tok", Card("4")).job())
    assert repr(SendWelcomeEmail(1)) == "SendWelcomeEmail(user_id=1, card=None)"


def test_a_secret_path_may_lead_through_lists() -> None:
    class Charge(Worker, secret=("cards[0].number", "pins.*.code")):
        cards: list[Card]
        pins: list[dict[str, str]]

        def perform(self, job: JobInfo) -> None: ...

    assert repr(Charge([Card("4")], [{"code": "1"}])) == "Charge(cards=[redacted], pins=[redacted])"


def test_values_of_classes_and_functions_can_be_pickled() -> None:
    for value in (SendWelcomeEmail(1, Card("4")), resize_image(3), resize_image(3).job()):
        assert pickle.loads(pickle.dumps(value)) == value


def test_fields_of_a_base_class_are_args_too() -> None:
    class Base(Worker):
        tenant: int

    class Child(Base):
        user: int = 1

        def perform(self, job: JobInfo) -> None: ...

    assert arg_names(Child) == ("tenant", "user")
    assert decode(Child, encode(Child(5, 6))) == Child(5, 6)


def test_settings_are_not_inherited() -> None:
    class Base(Worker, queue="a"):
        def perform(self, job: JobInfo) -> None: ...

    class Child(Base): ...

    assert Child.__jobkit__.queue == "default"
    assert Child.__jobkit__.name == "child"


def test_a_base_without_perform_is_no_worker_to_run() -> None:
    class Base(Worker):
        tenant: int

    with pytest.raises(WorkerDefinitionError, match="perform is missing"):
        worker_of(Base)
    with pytest.raises(WorkerDefinitionError, match="perform is missing"):
        Base(1).job()


def test_JA7_args_may_be_called_as_the_settings_are() -> None:
    class Odd(Worker):
        name: str
        queue: str
        priority: int
        args: int
        self: int
        id: int
        timeout: float = 1.0

        def perform(this, job: JobInfo) -> None: ...

    value = Odd(name="a", queue="b", priority=1, args=2, self=3, id=4)
    assert decode(Odd, encode(value)) == value
    assert Odd.__jobkit__.queue == "default"


@pytest.mark.parametrize("name", ["perform", "backoff", "job", "__jobkit__", "__jobkit_codec__", "__doc__"])
def test_JA7_the_few_names_that_args_cannot_have_are_refused_at_definition(name: str) -> None:
    def body(ns: dict[str, Any]) -> None:
        ns["__annotations__"] = {name: int}

    with pytest.raises(WorkerDefinitionError, match=name):
        types.new_class("Bad", (Worker,), {}, body)


def test_JA7_a_function_parameter_cannot_take_those_names_either() -> None:
    with pytest.raises(WorkerDefinitionError, match="'job'"):

        @worker
        def bad(job: int) -> None: ...


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        (field(init=False, default=1), int),
        (field(compare=False, default=1), int),
        (1, InitVar[int]),
        (1, "InitVar[int]"),
        ([], list),
    ],
)
def test_fields_that_would_not_be_stored_or_compared_are_refused(spec: object, hint: object) -> None:
    def body(ns: dict[str, Any]) -> None:
        ns |= {"__annotations__": {"x": hint}, "x": spec, "__module__": __name__}

    with pytest.raises(WorkerDefinitionError):
        types.new_class("Bad", (Worker,), {}, body)


@pytest.mark.parametrize("name", ["__init__", "__eq__", "__setattr__", "__slots__"])
def test_what_the_dataclass_brings_cannot_be_redefined(name: str) -> None:
    with pytest.raises(WorkerDefinitionError, match=name):
        types.new_class("Bad", (Worker,), {}, lambda ns: ns.update({name: ()}))


def test_dataclass_slots_over_a_worker_are_refused() -> None:
    with pytest.raises(WorkerDefinitionError, match="frozen dataclass already"):

        @dataclass(slots=True)
        class Bad(Worker):
            x: int


# -- bodies


def generator(self: object, job: object = None) -> Iterator[int]:
    yield 1


async def async_generator(self: object, job: object = None) -> AsyncIterator[int]:
    yield 1


@functools.wraps(generator)
def wrapped(*args: Any) -> Any:
    return generator(*args)


BODIES = [
    generator,
    async_generator,
    wrapped,
    staticmethod(lambda self, job: 1),
    property(lambda self: 1),
    5,
    None,
]


@pytest.mark.parametrize("body", BODIES, ids=stable)
def test_ER7_a_body_that_is_no_plain_or_async_function_is_refused(body: object) -> None:
    with pytest.raises(WorkerDefinitionError, match="body"):
        types.new_class("Bad", (Worker,), {}, lambda ns: ns.update(perform=body))


@pytest.mark.parametrize(
    "fn", [generator, async_generator, functools.partial(print), print, 5, "x", Card], ids=stable
)
def test_ER7_only_functions_become_workers(fn: Any) -> None:
    with pytest.raises(WorkerDefinitionError, match="body"):
        worker(fn)


@pytest.mark.parametrize("perform", [lambda self: None, lambda self, job, extra: None, lambda: None])
def test_a_perform_that_does_not_take_the_job_is_refused(perform: object) -> None:
    with pytest.raises(WorkerDefinitionError, match=r"perform\(self, job\)"):
        types.new_class("Bad", (Worker,), {}, lambda ns: ns.update(perform=perform))


def test_functions_with_parameters_that_have_no_name_to_store_are_refused() -> None:
    def star(*urls: str) -> None: ...
    def stars(**options: str) -> None: ...
    def positional(a: int, /) -> None: ...
    def method(self, a: int) -> None: ...  # type: ignore[no-untyped-def]
    def twice(a: JobInfo, b: JobInfo) -> None: ...

    for fn, text in [
        (star, "urls"),
        (stars, "options"),
        (positional, "a"),
        (method, "method"),
        (twice, "two"),
    ]:
        with pytest.raises(WorkerDefinitionError, match=text) as caught:
            worker(fn)  # type: ignore[call-overload]
        assert f"{fn.__qualname__} ({__file__}:" in str(caught.value)


def test_a_class_runs_its_perform() -> None:
    result = SendWelcomeEmail(1).perform(JOB)
    assert isinstance(result, Awaitable)

    async def wait() -> object:
        return await result

    assert asyncio.run(wait()) == Done()


def test_a_function_runs_with_its_args_and_stays_callable() -> None:
    value = resize_image(image_id=1)
    assert value.perform(JOB) == (1, 800)
    assert resize_image.fn(2, 3) == (2, 3)
    assert resize_image.__name__ == "resize_image"  # type: ignore[attr-defined]
    assert resize_image.__doc__ == "Make it small."
    assert repr(value) == "resize_image(image_id=1, width=800)"
    assert "resize_image" in repr(resize_image)


def test_a_parameter_annotated_JobInfo_receives_the_job_and_is_no_arg() -> None:
    value = fetch("u", headers={"a": "b"})
    assert arg_names(fetch.worker) == ("url", "headers", "tags")
    assert fetch.worker.__jobkit__.is_async

    async def run() -> object:
        body = decode(fetch.worker, encode(value)).perform(JOB)
        assert isinstance(body, Awaitable)
        return await body

    assert asyncio.run(run()) == [JOB, "u", {"a": "b"}, []]


def test_a_mutable_default_of_a_function_is_each_value_s_own() -> None:
    one, two = fetch("u", headers={}), fetch("u", headers={})
    assert one.tags is not two.tags  # type: ignore[attr-defined]


def test_calling_with_wrong_parameters_is_a_TypeError() -> None:
    with pytest.raises(TypeError, match="image_id"):
        resize_image()  # type: ignore[call-arg]


def test_worker_of_takes_classes_and_functions_and_nothing_else() -> None:
    assert worker_of(resize_image) is resize_image.worker
    assert worker_of(SendWelcomeEmail) is SendWelcomeEmail
    for wrong in (Worker, int, resize_image.fn, resize_image(1)):
        with pytest.raises(WorkerDefinitionError, match="no worker"):
            worker_of(wrong)  # type: ignore[arg-type]
    assert isinstance(resize_image, FunctionWorker)


# -- annotations


def test_a_type_that_the_module_defines_later_is_found_at_first_use() -> None:
    value = SendWelcomeEmail(1, Card("4"))
    assert decode(SendWelcomeEmail, encode(value)) == value


def test_types_of_the_function_around_the_definition_are_found() -> None:
    @dataclass(frozen=True)
    class Local:
        a: int

    class Here(Worker):
        local: Local

        def perform(self, job: JobInfo) -> None: ...

    @worker
    def there(local: Local) -> None: ...

    assert decode(Here, encode(Here(Local(1)))) == Here(Local(1))
    assert decode(there.worker, encode(there(Local(1)))) == there(Local(1))


def test_a_class_of_the_body_and_a_field_called_like_its_type_are_found() -> None:
    class Here(Worker):
        @dataclass(frozen=True)
        class Inner:
            a: int

        inner: Inner
        datetime: datetime = NOW

        def perform(self, job: JobInfo) -> None: ...

    value = Here(Here.Inner(1))
    assert decode(Here, encode(value)) == value


def test_types_that_cannot_be_resolved_give_an_error_that_names_arg_and_place() -> None:
    class Here(Worker):
        amount: OnlyForCheckers

        def perform(self, job: JobInfo) -> None: ...

    for use in (lambda: worker_of(Here), lambda: encode(Here(1)), lambda: decode(Here, "{}")):  # type: ignore[arg-type]
        with pytest.raises(WorkerDefinitionError, match=r"Here \(.*OnlyForCheckers.*'amount'.*TYPE_CHECKING"):
            use()


def test_a_job_parameter_is_known_by_name_when_JobInfo_is_imported_for_checkers_only() -> None:
    source = """
from __future__ import annotations
from typing import TYPE_CHECKING
from jobkit.workers import worker
if TYPE_CHECKING:
    from jobkit.jobs import JobInfo
@worker
def run(job: JobInfo, a: int) -> Nothing: return job, a
"""
    module = types.ModuleType("only_for_checkers")
    sys.modules["only_for_checkers"] = module
    exec(source, module.__dict__)
    try:
        assert module.run(a=1).perform(JOB) == (JOB, 1)
    finally:
        del sys.modules["only_for_checkers"]


def test_definitions_work_without_the_future_import() -> None:
    source = """
from jobkit.jobs import JobInfo
from jobkit.workers import Worker, worker
class Plain(Worker):
    a: int
    b: "list[Later] | None" = None
    def perform(self, job): return job
class Later(Worker):
    c: int = 0
@worker
def run(a: int, *, job: JobInfo, b=None): return job, a, b
"""
    module = types.ModuleType("no_future")
    sys.modules["no_future"] = module
    exec(source, module.__dict__)
    try:
        assert decode(module.Plain, '{"a":1,"b":[{"c":2}]}').b == [module.Later(2)]
        assert module.run(1, b="x").perform(JOB) == (JOB, 1, "x")
    finally:
        del sys.modules["no_future"]


@pytest.mark.parametrize("hint", [complex, Callable[[], int], type, "1 +", "5", datetime | str])
def test_a_type_without_a_JSON_form_is_refused_at_definition(hint: object) -> None:
    with pytest.raises(WorkerDefinitionError, match="Bad"):
        types.new_class(
            "Bad", (Worker,), {}, lambda ns: ns.update(__annotations__={"x": hint}, perform=nothing)
        )


def test_a_nested_class_without_equality_is_refused_at_definition() -> None:
    @dataclass(eq=False)
    class Blind:
        a: int

    with pytest.raises(WorkerDefinitionError, match="equality"):

        class Bad(Worker):
            x: list[Blind]

            def perform(self, job: JobInfo) -> None: ...


# -- backoff


@given(attempt=st.integers(-(10**30), 10**30), fraction=st.floats(0, 1, exclude_max=True))
def test_RT1_default_backoff_is_capped_never_negative_and_never_overflows(
    attempt: int, fraction: float
) -> None:
    assert timedelta(0) <= default_backoff(attempt, fraction) <= timedelta(days=7)


def test_RT1_default_backoff_follows_the_formula() -> None:
    assert default_backoff(1, 0.0) == timedelta(seconds=16)
    assert default_backoff(3, 0.5) == timedelta(seconds=81 + 15 + 45)
    assert default_backoff(10, 0.0) == timedelta(seconds=10_015)
    assert default_backoff(40, 0.0) == timedelta(days=7)


def test_RT5_default_backoff_is_jittered() -> None:
    delays = {SendWelcomeEmail.backoff(5) for _ in range(20)}
    assert len(delays) > 1


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (timedelta(seconds=-5), timedelta(0)),
        (timedelta.max, timedelta(days=36_525)),
        (1.5, timedelta(seconds=1.5)),
        (10**400, timedelta(days=36_525)),
        (float("inf"), timedelta(days=36_525)),
        (-1, timedelta(0)),
    ],
    ids=stable,
)
def test_RT1_a_worker_s_own_backoff_is_brought_into_range(given: Any, expected: timedelta) -> None:
    class Own(Worker):
        def perform(self, job: JobInfo) -> None: ...

        @classmethod
        def backoff(cls, attempt: int) -> timedelta:
            return given  # type: ignore[no-any-return]

    assert backoff_of(Own, 1, 0.5) == expected


@pytest.mark.parametrize("given", [None, "5", True, float("nan")])
def test_a_backoff_that_gives_no_delay_is_an_error_of_its_own(given: Any) -> None:
    class Own(Worker):
        def perform(self, job: JobInfo) -> None: ...

        @staticmethod
        def backoff(attempt: int) -> timedelta:
            return given  # type: ignore[no-any-return]

    with pytest.raises((TypeError, ValueError), match="own: backoff"):
        backoff_of(Own, 1, 0.5)


def test_backoff_of_asks_the_default_where_the_worker_has_none() -> None:
    assert backoff_of(SendWelcomeEmail, 2, 0.0) == default_backoff(2, 0.0)
    assert backoff_of(HTTPFetch, 2, 0.0) == timedelta(0)


async def no_coroutine(cls: object, attempt: int) -> timedelta:
    return timedelta(0)


@pytest.mark.parametrize(
    "backoff", [lambda self, attempt: timedelta(0), classmethod(lambda cls: 1), classmethod(no_coroutine), 5]
)
def test_a_backoff_that_could_not_be_called_is_refused(backoff: object) -> None:
    with pytest.raises(WorkerDefinitionError, match="backoff"):
        types.new_class("Bad", (Worker,), {}, lambda ns: ns.update(backoff=backoff))


def test_a_post_init_that_refuses_is_an_ArgsError_when_decoding() -> None:
    class Picky(Worker):
        a: int

        def __post_init__(self) -> None:
            if self.a < 0:
                raise KeyError("negative")

        def perform(self, job: JobInfo) -> None: ...

    with pytest.raises(ArgsError, match=r"picky.*KeyError"):
        decode(Picky, '{"a":-1}')
