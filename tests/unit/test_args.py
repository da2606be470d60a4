"""Args through JSON and back: what survives comes back equal, all else is refused before any row."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any, Literal, NamedTuple, TypedDict
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit._codec import MAX_ARGS_BYTES
from jobkit._encoding import MAX_DEPTH, _as_jsonb
from jobkit.errors import ArgsError
from jobkit.jobs import JobInfo
from jobkit.workers import Worker, decode, encode
from tests.support.ids import stable


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1


class Word(StrEnum):
    A = "a"


@dataclass(frozen=True)
class Card:
    number: str
    amount: Decimal
    at: datetime | None = None


class Point(NamedTuple):
    x: int
    y: float


class Options(TypedDict, total=False):
    retries: int
    note: str


class Item(msgspec.Struct, frozen=True):
    sku: str
    count: int = 1


class Typed(Worker):
    flag: bool
    count: int
    ratio: float
    text: str
    raw: bytes
    key: uuid.UUID
    day: date
    moment: datetime
    clock: time
    span: timedelta
    amount: Decimal
    colour: Colour
    level: Level
    mode: Literal["a", "b"]
    card: Card | None
    item: Item
    point: Point
    options: Options
    numbers: list[int]
    pair: tuple[int, str]
    unique: frozenset[str]
    by_number: dict[int, float]
    tree: dict[str, list[Card]]

    def perform(self, job: JobInfo) -> None: ...


class Loose(Worker):
    x: Any

    def perform(self, job: JobInfo) -> None: ...


class Anything(Worker):
    x: object
    big: float = 0.0

    def perform(self, job: JobInfo) -> None: ...


class Holder(Worker):
    count: int = 0
    text: str = ""
    ratio: float | None = None
    either: int | float = 0
    moment: datetime | None = None
    numbers: list[float] = field(default_factory=list)
    by_name: dict[str, int] = field(default_factory=dict)
    hidden: float = 0.0

    def perform(self, job: JobInfo) -> None: ...


def on_postgres(text: str) -> str:
    """What reads back from a jsonb column: other key order, numbers rewritten."""
    data = msgspec.json.decode(text)
    rewritten = _as_jsonb(data)
    data = data if rewritten is None else rewritten
    return json.dumps(data, sort_keys=True, ensure_ascii=False)


offsets = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
zones = st.sampled_from(
    [ZoneInfo("Europe/Amsterdam"), ZoneInfo("America/New_York"), ZoneInfo("Asia/Kolkata"), UTC]
)
modern = st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1), timezones=zones)
moments = st.one_of(st.datetimes(timezones=st.none() | offsets), modern)
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
decimals = st.decimals(allow_nan=False, allow_infinity=False)
floats = st.floats(allow_nan=False, allow_infinity=False)
cards = st.builds(Card, texts, decimals, st.none() | moments)

typed = st.builds(
    Typed,
    flag=st.booleans(),
    count=st.integers(),
    ratio=floats,
    text=texts,
    raw=st.binary(),
    key=st.uuids(),
    day=st.dates(),
    moment=moments,
    clock=st.times(),
    span=st.timedeltas(),
    amount=decimals,
    colour=st.sampled_from(Colour),
    level=st.just(Level.LOW),
    mode=st.sampled_from(["a", "b"]),
    card=st.none() | cards,
    item=st.builds(Item, texts, st.integers()),
    point=st.builds(Point, st.integers(), floats),
    options=st.fixed_dictionaries({}, optional={"retries": st.integers(), "note": texts}),
    numbers=st.lists(st.integers()),
    pair=st.tuples(st.integers(), texts),
    unique=st.frozensets(texts),
    by_number=st.dictionaries(st.integers(), floats),
    tree=st.dictionaries(texts, st.lists(cards, max_size=3), max_size=3),
)


def comparable(value: Typed) -> list[object]:
    """Datetimes as instants, since a repeated hour equals no fixed offset."""

    def plain(x: Any) -> Any:
        if isinstance(x, datetime) and x.utcoffset() is not None:
            return (
                (x.replace(tzinfo=None) - (x.utcoffset() or timedelta()), "utc")
                if x.year in range(2, 9999)
                else x
            )
        if isinstance(x, Card):
            return x.number, x.amount, plain(x.at)
        if isinstance(x, dict):
            return {key: plain(item) for key, item in x.items()}
        return [plain(item) for item in x] if type(x) is list else x

    return [plain(getattr(value, name)) for name in value.__dataclass_fields__]


@given(value=typed)
def test_JA3_typed_args_come_back_exactly_from_both_backends(value: Typed) -> None:
    text = encode(value)
    assert comparable(decode(Typed, text)) == comparable(value)
    assert comparable(decode(Typed, on_postgres(text))) == comparable(value)
    assert comparable(decode(Typed, text.encode())) == comparable(value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
    max_leaves=15,
)


@given(value=json_values)
def test_JA4_an_untyped_arg_comes_back_with_its_types_or_is_refused(value: Any) -> None:
    try:
        text = encode(Loose(value))
    except ArgsError:
        return
    for back in (decode(Loose, text).x, decode(Loose, on_postgres(text)).x):
        assert back == value
        assert repr(back) == repr(value) or isinstance(value, dict | list | float)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_JA1_NaN_and_infinities_are_refused_wherever_they_stand(bad: float) -> None:
    for value in (
        Holder(ratio=bad),
        Holder(numbers=[1.0, bad]),
        Holder(hidden=bad),
        Loose(bad),
        Loose({"a": [bad]}),
        Anything([bad]),
    ):
        with pytest.raises(ArgsError, match="NaN and infinities"):
            encode(value)


def test_JA1_null_itself_is_no_NaN() -> None:
    assert encode(Loose({"null": None, "a": ["null"]})) == '{"x":{"null":null,"a":["null"]}}'


def test_JA1_a_decimal_NaN_is_refused() -> None:
    with pytest.raises(ArgsError, match="amount"):
        encode(Money(Decimal("NaN")))


class Money(Worker):
    amount: Decimal

    def perform(self, job: JobInfo) -> None: ...


@pytest.mark.parametrize(
    "value", [Holder(text="a\0b"), Holder(by_name={"\0": 1}), Loose(["\\\0"]), Loose({"\0": 1})]
)
def test_JA2_NUL_is_refused(value: Worker) -> None:
    with pytest.raises(ArgsError, match="NUL"):
        encode(value)


@pytest.mark.parametrize("text", ["\\u0000", "\\\\u0000", "a\\\\\\u0000", "\x01\x1f\x7f", "\u2028", "🎉"])
def test_JA2_text_that_only_looks_like_NUL_passes(text: str) -> None:
    assert decode(Holder, encode(Holder(text=text))).text == text


@pytest.mark.parametrize("value", [Holder(text="\ud800"), Holder(by_name={"\udfff": 1}), Loose(["\ud83d"])])
def test_lone_surrogates_are_refused(value: Worker) -> None:
    with pytest.raises(ArgsError, match="surrogate"):
        encode(value)


@pytest.mark.parametrize(
    "number",
    [2**53 + 1, 2**63, -(2**64), 2**70, 10**4200, -(10**4200)],
    ids=lambda n: f"{n:.0e}" if abs(n) < 2**100 else "huge",
)
def test_JA3_integers_of_any_permitted_size_come_back_exactly(number: int) -> None:
    assert decode(Holder, encode(Holder(count=number))).count == number
    assert decode(Loose, encode(Loose([number]))).x == [number]


def test_JA3_an_integer_that_could_not_be_loaded_again_is_refused() -> None:
    with pytest.raises(ArgsError, match="JSON form"):
        encode(Holder(count=10**5000))


WRONG: list[Worker] = [
    Holder(count="1"),  # type: ignore[arg-type]
    Holder(count=1.0),  # type: ignore[arg-type]
    Holder(count=True),
    Holder(text=b"a"),  # type: ignore[arg-type]
    Holder(text=None),  # type: ignore[arg-type]
    Holder(moment="yesterday"),  # type: ignore[arg-type]
    Holder(numbers=(1.0,)),  # type: ignore[arg-type]
    Holder(numbers=["1"]),  # type: ignore[list-item]
    Holder(by_name={1: 1}),  # type: ignore[dict-item]
    Holder(ratio=1j),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("value", WRONG, ids=stable)
def test_JA4_values_of_the_wrong_type_are_refused(value: Worker) -> None:
    with pytest.raises(ArgsError, match=r"^holder: "):
        encode(value)


LOST = [
    (1, 2),
    {1, 2},
    b"raw",
    NOW := datetime(2026, 1, 1, tzinfo=UTC),
    date(2026, 1, 1),
    timedelta(1),
    Decimal("1"),
    uuid.UUID(int=1),
    Colour.RED,
    Level.LOW,
    Word.A,
    Card("1", Decimal(1)),
    {1: "a"},
    {Word.A: 1},
    [1, (2,)],
    {"a": {"b": Level.LOW}},
    1e16,
    1e300,
    [{"a": -1e22}],
    object(),
    1j,
    len,
]


@pytest.mark.parametrize("value", LOST, ids=stable)
def test_JA4_values_whose_type_JSON_would_lose_are_refused_where_no_type_is_declared(value: object) -> None:
    for worker in (Loose(value), Anything(value)):
        with pytest.raises(ArgsError):
            encode(worker)


def test_JA4_large_floats_survive_where_they_are_declared() -> None:
    value = Anything("a", big=1e300)
    assert decode(Anything, on_postgres(encode(value))) == value
    assert decode(Holder, on_postgres(encode(Holder(hidden=1e308)))) == Holder(hidden=1e308)
    with pytest.raises(ArgsError):
        encode(Holder(either=1e300))


def test_a_whole_number_for_a_float_field_is_taken_as_one() -> None:
    back = decode(Holder, encode(Holder(ratio=1)))
    assert type(back.ratio) is float


def test_JA5_args_up_to_the_limit_pass_and_one_byte_more_is_refused() -> None:
    spare = MAX_ARGS_BYTES - len(encode(Loose("")))
    assert len(encode(Loose("x" * spare))) == MAX_ARGS_BYTES == 256 * 1024
    with pytest.raises(ArgsError, match=r"262145 bytes.*262144"):
        encode(Loose("x" * (spare + 1)))


def test_JA5_the_limit_counts_bytes_not_characters() -> None:
    with pytest.raises(ArgsError, match="bytes"):
        encode(Loose("€" * (MAX_ARGS_BYTES // 3)))


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_JA8_nesting_has_a_limit() -> None:
    assert encode(Loose(nested(MAX_DEPTH - 1)))
    for depth in (MAX_DEPTH, 900, 100_000):
        with pytest.raises(ArgsError, match="nested too deeply"):
            encode(Loose(nested(depth)))


def test_JA8_many_brackets_are_no_depth() -> None:
    value = Loose([{"[[[": []} for _ in range(500)])
    assert decode(Loose, encode(value)) == value


def test_JA8_args_that_refer_to_themselves_are_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    tree: dict[str, Any] = {}
    tree["me"] = [tree]
    for value in (loop, tree):
        with pytest.raises(ArgsError, match="refers to itself"):
            encode(Loose(value))


def test_SC2_a_datetime_in_a_repeated_hour_keeps_its_instant() -> None:
    zone = ZoneInfo("Europe/Amsterdam")
    for fold in (0, 1):
        moment = datetime(2026, 10, 25, 2, 30, tzinfo=zone, fold=fold)
        back = decode(Holder, encode(Holder(moment=moment))).moment
        assert back is not None
        assert back.astimezone(UTC) == moment.astimezone(UTC)


def test_an_offset_that_JSON_cannot_write_is_refused_with_the_remedy() -> None:
    with pytest.raises(ArgsError, match="convert it to UTC"):
        encode(Holder(moment=datetime(1900, 1, 1, tzinfo=ZoneInfo("Europe/Amsterdam"))))


@dataclass(frozen=True)
class Tree:
    name: str
    children: tuple[Tree, ...] = ()


class Forest(Worker):
    trees: list[Tree]

    def perform(self, job: JobInfo) -> None: ...


def test_types_that_refer_to_themselves_are_args_like_others() -> None:
    value = Forest([Tree("a", (Tree("b"), Tree("c", (Tree("d"),))))])
    assert decode(Forest, encode(value)) == value


def test_a_message_names_the_worker_and_the_arg_and_never_the_value() -> None:
    with pytest.raises(ArgsError) as caught:
        encode(Holder(count="s3cret"))  # type: ignore[arg-type]
    assert str(caught.value) == "holder: args refused: Expected `int`, got `str` - at `$.count`"
    with pytest.raises(ArgsError, match=r"^loose: arg 'x': tuple comes back from JSON as list$"):
        encode(Loose(("s3cret",)))


# -- decoding what an older or newer program wrote


def test_a_missing_key_takes_the_field_s_default_and_an_unknown_one_is_ignored() -> None:
    assert decode(Holder, '{"count":3,"gone":{"a":1}}') == Holder(count=3)


BROKEN = [
    "",
    "{",
    "[]",
    "null",
    "5",
    '{"count":"x"}',
    '{"count":1e400}',
    '{"text":"\\ud800"}',
    b"\xff",
    "\ud800",
    "{}x",
]


@pytest.mark.parametrize("text", BROKEN, ids=stable)
def test_JA6_args_that_do_not_decode_are_an_ArgsError(text: str | bytes) -> None:
    with pytest.raises(ArgsError, match=r"^holder: args do not decode"):
        decode(Holder, text)


def test_JA6_a_missing_arg_without_default_is_an_ArgsError() -> None:
    with pytest.raises(ArgsError, match=r"loose: args do not decode.*`x`"):
        decode(Loose, "{}")


@given(text=st.text() | st.binary())
def test_JA6_whatever_a_row_holds_decodes_or_is_an_ArgsError(text: str | bytes) -> None:
    try:
        assert isinstance(decode(Holder, text), Holder)
    except ArgsError:
        pass
