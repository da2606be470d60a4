"""The redactor hides what the corpus calls secret, shows what only looks like it, and never raises."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobkit.redact import FAILED, REDACTED, RedactionRules, Redactor, finders, search
from jobkit.redact.names import Names
from tests.unit.redaction_corpus import HOSTILE, LOOK_ALIKES, SECRETS, Secret

REDACTOR = Redactor()
# Ten times the figure that `benchmarks/redaction.py` measures: a shared machine may be busy with other things.
SECONDS_PER_MEGABYTE = 0.5
KEYS = """
    password passwd pwd pass passphrase secret token apikey api_key access_key private_key client_secret authorization
    auth cookie session_id csrf otp pin cvv cvc card_number pan ssn iban sin dob credential credentials signature salt
    dsn database_url connection_string webhook_url
"""
SPELLINGS = """
    userPassword USER_PASSWORD user-password user.password password2 dbPwd APIKey apiKey x-api-key AWSSecretAccessKey
    clientSecret sessionID session.id cardNumber card.number authHeader OAuthToken credentials.json token_type
"""
HARMLESS = """
    author authors authored keyboard monkey passenger passengers tokens token_count tokenCount max_tokens compass
    bypass passed spinner pinned company single using design assign salty key api access number card session secretary
    cookiecutter hotpot data 1 _
"""
MARKS = """ = : " ' \\ \\" , { } [ ] ( ) & ? @ :// / < - Bearer Basic eyJ 4111 4111111111111111 ghp_ ----- => == ; .
    [redac ted] """


def test_the_corpus_is_large_enough() -> None:
    assert len({secret.text for secret in SECRETS}) >= 150
    assert len(set(LOOK_ALIKES)) >= 150


# --- Texts ---


@pytest.mark.parametrize("secret", SECRETS, ids=lambda secret: secret.text[:60])
def test_ER5_a_secret_is_gone_and_what_stands_around_it_is_not(secret: Secret) -> None:
    shown = REDACTOR.text(secret.text)

    assert [hidden for hidden in secret.hidden if hidden in shown] == []
    assert [kept for kept in secret.kept if kept not in shown] == []
    assert REDACTOR.text(shown) == shown


@pytest.mark.parametrize("text", LOOK_ALIKES)
def test_ER5_what_only_looks_like_a_secret_is_shown(text: str) -> None:
    assert REDACTOR.text(text) == text


def test_ER5_host_and_cause_stay_readable() -> None:
    error = "HTTPError: 402 from https://deploy:not-a-password@api.example.com/v1/charges?token=not-a-token"

    assert REDACTOR.text(error) == (
        f"HTTPError: 402 from https://{REDACTED}@api.example.com/v1/charges?token={REDACTED}"
    )


@pytest.mark.parametrize(
    "kind", ["e-mail bob@example.com", "phone +1 202 555 0143", "ip 10.1.2.3", "7f3a9c0e5b1d8a6f"]
)
def test_personal_data_and_random_strings_are_shown_unless_a_pattern_says_otherwise(kind: str) -> None:
    assert REDACTOR.text(kind) == kind
    assert (
        Redactor(
            RedactionRules(patterns=(r"[\w.]+@[\w.]+", r"\+1[ \d]+", r"\d+(?:\.\d+){3}", "[0-9a-f]{16}"))
        )
        .text(kind)
        .endswith(REDACTED)
    )


def test_a_text_that_was_redacted_before_is_not_touched() -> None:
    text = f"password={REDACTED} https://{REDACTED}@h/?token={REDACTED} Authorization: {REDACTED}\ntoken: {FAILED}"

    assert REDACTOR.text(text) == text


@pytest.mark.parametrize(
    "text", [None, 17, b"password=abc123", ValueError("password=abc123"), ["password=abc123"]]
)
def test_what_is_no_text_is_redacted_as_its_text(text: object) -> None:
    shown = REDACTOR.text(text)  # type: ignore[arg-type]

    assert isinstance(shown, str)
    assert "abc123" not in shown


def test_an_object_that_cannot_be_printed_is_hidden() -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert REDACTOR.text(Unprintable()) == FAILED  # type: ignore[arg-type]
    assert REDACTOR.value({"a": Unprintable(), "b": 1}) == {"a": FAILED, "b": 1}


def test_a_class_of_strings_with_methods_of_its_own_is_read_by_its_characters() -> None:
    class Sly(str):
        def isalnum(self) -> bool:
            return True

        def lstrip(self, chars: str | None = None, /) -> str:
            raise RuntimeError("no")

        def __str__(self) -> str:
            return "nothing"

    assert REDACTOR.text(Sly("password=abc123")) == f"password={REDACTED}"
    assert type(REDACTOR.value(Sly("harmless"))) is str


# --- Long texts ---


@pytest.mark.parametrize(
    "secret", [secret for secret in SECRETS if len(secret.text) > 90][:7], ids=lambda s: s.text[:40]
)
@pytest.mark.parametrize("edge", [64 * 1024, 60 * 1024, 124 * 1024])
def test_a_secret_across_the_edge_of_a_window_is_hidden(secret: Secret, edge: int) -> None:
    for cut in range(1, len(secret.text), 41):
        text = ". " * ((edge - cut) // 2) + "\n" + secret.text + "\n" + ". " * 40_000
        shown = REDACTOR.text(text)

        assert [hidden for hidden in secret.hidden if hidden in shown] == []


@pytest.mark.parametrize(
    "secret",
    [
        "password=" + "x1" * 70_000,
        "password='" + "x 1 " * 40_000 + "'",
        "Authorization: " + "x 1 " * 40_000,
        "eyJhbGciOiJIUzI1NiJ9." + "x1" * 70_000 + ".x1x1",
        "Bearer " + "x1" * 70_000,
        "-----BEGIN PRIVATE KEY-----\n" + "x1x1x1x1x1x1x1x1\n" * 9_000 + "-----END PRIVATE KEY-----",
        "ghp_" + "x1" * 70_000,
    ],
    ids=lambda secret: secret[:20],
)
def test_a_secret_longer_than_a_window_is_hidden_whole(secret: str) -> None:
    shown = REDACTOR.text(". " * 1000 + "\n" + secret + "\nthe end")

    assert "x1" not in shown.replace(" ", "")
    assert shown.endswith("\nthe end")


def test_a_bare_value_of_many_pieces_is_hidden_to_the_next_blank() -> None:
    shown = Redactor().text("password=" + "\\a" * 10_000 + "&b=,;" + "c" * 50 + " went wrong")
    assert shown == "password=[redacted] went wrong"


def test_rules_of_equal_signs_are_no_reason_to_hide_a_text() -> None:
    text = "".join(f"{'=' * 80}\nline {number}: fine\n" for number in range(2_000))
    assert Redactor().text(text) == text


def test_a_window_full_of_secrets_is_hidden_whole_and_the_rest_is_shown() -> None:
    text = ". " * 100_000 + "password=abc123 " * 8000 + ". " * 100_000
    shown = REDACTOR.text(text)

    assert "abc123" not in shown
    assert shown.startswith(". . ")
    assert shown.endswith(". . ")
    assert REDACTOR.text(shown) == shown


@pytest.mark.parametrize("name", HOSTILE)
def test_a_megabyte_of_hostile_text_takes_linear_time(name: str) -> None:
    text = HOSTILE[name]
    for pattern_set, find in finders(Names(())).items():
        started = time.process_time()
        search(text, [find])
        assert time.process_time() - started < SECONDS_PER_MEGABYTE, pattern_set


@pytest.mark.parametrize("name", HOSTILE)
def test_redacting_hostile_text_twice_changes_nothing_more(name: str) -> None:
    shown = REDACTOR.text(HOSTILE[name][:150_000])

    assert REDACTOR.text(shown) == shown


# --- Values ---


@pytest.mark.parametrize("key", KEYS.split())
@pytest.mark.parametrize("value", ["x", "", 0, 1.5, True, None, ["x"], {"a": {"b": "x"}}])
def test_a_secret_key_hides_its_whole_value(key: str, value: object) -> None:
    assert REDACTOR.value({"a": [{key: value}], "n": 1}) == {"a": [{key: REDACTED}], "n": 1}


@pytest.mark.parametrize(
    "key",
    SPELLINGS.split(),
)
def test_a_key_name_is_found_in_every_spelling(key: str) -> None:
    assert REDACTOR.is_secret_key(key)


@pytest.mark.parametrize("key", [*HARMLESS.split(), "", " ", "é", "名前"])
def test_a_key_name_that_only_contains_a_secret_word_is_shown(key: str) -> None:
    assert not REDACTOR.is_secret_key(key)
    assert REDACTOR.value({key: "x"}) == {key: "x"}


def test_a_pair_of_words_is_found_across_two_levels() -> None:
    assert REDACTOR.value({"card": {"number": 5, "brand": "x"}}) == {
        "card": {"number": REDACTED, "brand": "x"}
    }
    assert REDACTOR.value({"number": 5}, path="args.card") == {"number": REDACTED}


def test_texts_within_a_value_are_redacted_and_keys_as_well() -> None:
    value = {"url": "https://u:abc123@h/x", "l": ["token=abc123"], "https://u:abc123@h": 1}

    assert REDACTOR.value(value) == {
        "url": f"https://{REDACTED}@h/x",
        "l": [f"token={REDACTED}"],
        f"https://{REDACTED}@h": 1,
    }


def test_a_card_number_is_hidden_as_a_number_too() -> None:
    assert REDACTOR.value([4111111111111111, 4111111111111112, True, 10**30, -1]) == [
        REDACTED,
        4111111111111112,
        True,
        10**30,
        -1,
    ]


def test_json_in_a_string_is_looked_into_once() -> None:
    inner = json.dumps({"auth": {"x": "abc123"}, "n": 1})

    assert REDACTOR.value({"s": inner}) == {"s": json.dumps({"auth": REDACTED, "n": 1})}
    assert REDACTOR.text(inner) == json.dumps({"auth": REDACTED, "n": 1})
    assert REDACTOR.value(json.dumps([json.dumps({"a": "password=abc123"})])) == json.dumps(
        [json.dumps({"a": f"password={REDACTED}"})]
    )


def test_json_in_a_string_without_secrets_keeps_its_spelling() -> None:
    text = ' {"b" : 1.0,  "a": [1e3, "\\u00e9"] }'

    assert REDACTOR.value({"s": text}) == {"s": text}


def test_a_key_that_stands_twice_in_json_hides_no_secret() -> None:
    assert "abc123" not in REDACTOR.text('{"a": {"password": "abc123"}, "a": 1}')


def test_the_value_given_is_not_changed() -> None:
    value = {"password": "x", "l": [{"token": "x"}]}
    REDACTOR.value(value)

    assert value == {"password": "x", "l": [{"token": "x"}]}


def test_a_tuple_comes_back_as_a_list_and_other_objects_as_their_text() -> None:
    assert REDACTOR.value((1, "a")) == [1, "a"]
    assert REDACTOR.value({"a": b"password=abc123", 1: "x", None: "y"}) == {
        "a": f"b'password={REDACTED}'",
        1: "x",
        None: "y",
    }


def test_a_value_within_itself_is_hidden_where_it_repeats() -> None:
    loop: dict[str, object] = {"n": 1}
    loop["self"] = loop

    assert REDACTOR.value(loop) == {"n": 1, "self": FAILED}


def test_a_value_nested_too_deep_is_hidden_below() -> None:
    deep: object = "password=abc123"
    for _ in range(sys.getrecursionlimit() * 2):
        deep = [deep]

    assert FAILED in json.dumps(REDACTOR.value({"n": 1, "deep": deep}))


def test_a_value_that_unfolds_without_end_is_hidden_whole() -> None:
    bomb: object = "x"
    for _ in range(40):
        bomb = [bomb, bomb]

    assert REDACTOR.value({"bomb": bomb}) == FAILED


# --- Declared paths, and the allow-list ---


@pytest.mark.parametrize(
    "declared", ["card.number", "args.card.number", "card", "card[].number", "card.*.number"]
)
def test_a_declared_path_hides_its_value_also_within_lists(declared: str) -> None:
    shown = Redactor(RedactionRules(allow=("args.card.number",))).value(
        {"card": [{"number": "abc123"}], "note": "x"}, secret_paths=(declared,)
    )

    assert "abc123" not in json.dumps(shown)
    assert "note" in json.dumps(shown)


def test_a_declared_path_is_relative_to_the_args_only() -> None:
    assert REDACTOR.value({"note": "x"}, path="meta", kind="meta", secret_paths=("note",)) == {"note": "x"}
    assert REDACTOR.value("x", path="args.note", secret_paths=("note",)) == REDACTED
    assert REDACTOR.value("x", path="args.note.deep", secret_paths=("note",)) == REDACTED


@pytest.mark.parametrize(
    ("path", "secret"),
    [
        ("args.user.password", True),
        ("args.password.length", True),
        ("args.users[0].password", True),
        ("args.users.0.password", True),
        ("args.card.number", True),
        ("args.note", True),
        ("args.note.deep", True),
        ("args.token_count", False),
        ("args.auth", False),
        ("args.auth.user", False),
        ("args.auth.password", True),
        ("args.user.name", False),
        ("args", False),
        ("", False),
        ("...", False),
        ("meta.note", False),
    ],
)
def test_a_path_is_secret_if_any_part_of_it_is(path: str, secret: bool) -> None:
    redactor = Redactor(RedactionRules(allow=("args.auth",)))

    assert redactor.is_secret_path(path, ("note",)) is secret


def test_an_allowed_path_is_shown_as_it_stands_but_its_children_are_judged() -> None:
    redactor = Redactor(RedactionRules(allow=("args.pin", "args.order", "args.auth", "args.items.token")))

    assert redactor.value(
        {
            "pin": "token=a",
            "order": 4111111111111111,
            "auth": {"user": "x", "password": "x"},
            "items": [{"token": 5, "secret": 5}],
        }
    ) == {
        "pin": "token=a",
        "order": 4111111111111111,
        "auth": {"user": "x", "password": REDACTED},
        "items": [{"token": 5, "secret": REDACTED}],
    }


# --- Settings ---


@pytest.mark.parametrize("key", ["national_id", "nationalId", "national-id", "National ID"])
def test_a_site_adds_key_names_in_any_spelling(key: str) -> None:
    redactor = Redactor(RedactionRules(keys=(key, "pesel")))

    assert redactor.value({"user": {"NationalId": 5, "national": 1, "pesel": 2}}) == {
        "user": {"NationalId": REDACTED, "national": 1, "pesel": REDACTED}
    }
    assert redactor.text("national_id=abc and national id: abc") == (
        f"national_id={REDACTED} and national id: {REDACTED}"
    )


@pytest.mark.parametrize(
    "pattern", [r"\w+", ".+", ".", "redacted", "[a-z]*", "d", r"\]", r"\[|\]", "(?s).*", "x|$", "^"]
)
def test_a_pattern_that_matches_the_replacement_settles_too(pattern: str) -> None:
    redactor = Redactor(RedactionRules(patterns=(pattern,)))
    for text in ("abc def", REDACTED, f"a{REDACTED}b", "", "password=x", "x" * 70_000):
        shown = redactor.text(text)
        assert redactor.text(shown) == shown


@pytest.mark.parametrize("pattern", ["[", "(", "*a", "(?P<n>a)(?P<n>b)", "a{3,1}"])
def test_a_pattern_that_does_not_compile_is_refused_by_name(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"redaction\.patterns: .* is no regular expression"):
        Redactor(RedactionRules(patterns=(pattern,)))


def test_a_key_name_without_a_letter_is_refused() -> None:
    with pytest.raises(ValueError, match=r"redaction\.keys"):
        Redactor(RedactionRules(keys=("17",)))


def test_redaction_that_is_off_shows_everything() -> None:
    redactor = Redactor(RedactionRules(off=True), hook=lambda *_: "hooked")
    value = {"password": "x", "card": {"number": "x"}}

    assert redactor.text("password=abc123") == "password=abc123"
    assert redactor.value(value, secret_paths=("card.number",)) == value
    assert not redactor.is_secret_key("password")
    assert not redactor.is_secret_path("args.password", ("password",))


# --- Hooks ---


def test_a_hook_is_asked_for_each_value_with_its_path_worker_and_kind() -> None:
    asked: list[tuple[object, str, str | None, str]] = []

    def hook(value: object, path: str, worker: str | None, kind: str) -> object | None:
        asked.append((value, path, worker, kind))
        return None

    value = {"a": [{"b": 1}], "password": "x"}
    Redactor(hook=hook).value(value, worker="mail", kind="args")
    Redactor(hook=hook).text("boom", worker="mail")

    assert asked == [
        (value, "args", "mail", "args"),
        ([{"b": 1}], "args.a", "mail", "args"),
        ({"b": 1}, "args.a", "mail", "args"),
        (1, "args.a.b", "mail", "args"),
        ("boom", "error", "mail", "error"),
    ]


def test_a_hook_replaces_a_value_and_the_built_in_rules_still_run() -> None:
    def hook(value: object, path: str, worker: str | None, kind: str) -> object | None:
        return {"shown": "token=abc123", "password": "abc123"} if path == "args.user" else None

    shown = Redactor(hook=hook).value({"user": 17, "n": 1})

    assert shown == {"user": {"shown": f"token={REDACTED}", "password": REDACTED}, "n": 1}


def test_a_hook_cannot_show_what_the_rules_hide() -> None:
    shown = Redactor(hook=lambda value, *_: value).value(
        {"password": "abc123", "card": {"number": "abc123"}, "s": "token=abc123"},
        secret_paths=("card.number",),
    )

    assert "abc123" not in json.dumps(shown)


@pytest.mark.parametrize("error", [RuntimeError, ValueError, RecursionError, MemoryError, StopIteration])
def test_a_hook_that_raises_hides_that_value_only(error: type[Exception]) -> None:
    def hook(value: object, path: str, worker: str | None, kind: str) -> object | None:
        if path in ("args.bad", "error"):
            raise error("abc123")
        return None

    redactor = Redactor(hook=hook)

    assert redactor.value({"bad": "x", "good": "y"}) == {"bad": FAILED, "good": "y"}
    assert redactor.text("x") == FAILED


def test_a_hook_that_answers_a_text_with_something_else_hides_it() -> None:
    assert Redactor(hook=lambda *_: 17).text("x") == FAILED


# --- For every input ---

WORDS = st.sampled_from(
    [
        *(secret.text for secret in SECRETS),
        *LOOK_ALIKES,
        *KEYS.split(),
        *MARKS.split(),
        *(REDACTED, FAILED, ": ", " ", "\n", "Bearer ", "Basic "),
    ]
)
TEXTS = st.lists(st.one_of(WORDS, st.text(max_size=8)), max_size=12).map("".join)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.one_of(st.sampled_from(KEYS.split()), TEXTS), inner, max_size=4)
        | inner.map(lambda value: json.dumps(value))
    ),
    max_leaves=12,
)


@settings(max_examples=400)
@given(TEXTS)
def test_redacting_a_text_twice_is_redacting_it_once(text: str) -> None:
    shown = REDACTOR.text(text)

    assert shown != FAILED or FAILED in text
    assert REDACTOR.text(shown) == shown


@settings(max_examples=200)
@given(JSON)
def test_redacting_a_value_twice_is_redacting_it_once(value: object) -> None:
    shown = REDACTOR.value(value)

    assert repr(REDACTOR.value(shown)) == repr(shown)


@given(st.text(max_size=40), st.sampled_from(SECRETS), st.text(max_size=40))
def test_a_secret_on_a_line_of_its_own_is_hidden_whatever_stands_before_and_after(
    before: str, secret: Secret, after: str
) -> None:
    shown = REDACTOR.text(f"{before}\n{secret.text}\n{after}")

    assert [
        hidden for hidden in secret.hidden if hidden in shown.replace(before, "").replace(after, "")
    ] == []


@given(
    st.one_of(
        JSON, st.binary(), st.complex_numbers(), st.sets(st.text()), st.dictionaries(st.integers(), JSON)
    ),
    st.text(max_size=20),
    st.lists(st.text(max_size=20)),
    st.sampled_from(
        [None, lambda *_: None, lambda *_: object(), lambda value, *_: [value], lambda *_: 1 / 0]
    ),
)
def test_nothing_raises(
    value: object,
    path: str,
    declared: list[str],
    hook: Callable[[object, str, str | None, str], object | None] | None,
) -> None:
    redactor = Redactor(RedactionRules(allow=tuple(declared[:1])), hook)

    redactor.text(value)  # type: ignore[arg-type]
    redactor.value(value, path=path, secret_paths=declared)
    redactor.is_secret_key(path)
    redactor.is_secret_path(path, declared)
