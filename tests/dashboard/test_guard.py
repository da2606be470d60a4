"""The guard, check by check: tables of what passes and what does not."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from jobkit_dashboard.guard import csrf, limits
from jobkit_dashboard.guard.headers import security_headers
from jobkit_dashboard.guard.hosts import HostRule, loopback_hosts
from jobkit_dashboard.guard.limits import Refused, parse_form, parse_json, read_body
from jobkit_dashboard.guard.redirects import safe_target
from jobkit_dashboard.guard.throttle import LoginThrottle, Rate, SearchGate

OWN = ["http://127.0.0.1:8778"]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


# -- hosts


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:8778",
        "localhost:8778",
        "LOCALHOST:8778",
        "[::1]:8778",
        "jobs.example.org",
        "jobs.example.org:443",
    ],
)
def test_known_hosts_are_answered(host: str) -> None:
    rule = HostRule(loopback_hosts(8778) | {"jobs.example.org"})
    assert rule.refuses([(b"host", host.encode())]) is None


@pytest.mark.parametrize(
    ("hosts", "status"),
    [
        ([], 400),
        ([b"127.0.0.1:8778", b"127.0.0.1:8778"], 400),
        ([b""], 400),
        ([b"user@127.0.0.1:8778"], 400),
        ([b"127.0.0.1:8778/x"], 400),
        ([b"127.0.0.1:8778, evil.example"], 400),
        ([b"127.0.0.1:8778\x00"], 400),
        ([b"localhost.:8778"], 400),
        ([b"evil.example:8778"], 421),
        ([b"127.0.0.1:9999"], 421),
        ([b"127.0.0.1"], 421),
        ([b"127.0.0.1.evil.example:8778"], 421),
        ([b"[::2]:8778"], 421),
    ],
)
def test_other_hosts_are_refused(hosts: list[bytes], status: int) -> None:
    assert HostRule(loopback_hosts(8778)).refuses([(b"host", host) for host in hosts]) == status


def test_a_mounted_dashboard_leaves_the_name_to_its_host_but_not_the_form() -> None:
    assert HostRule(None).refuses([(b"host", b"anything.example")]) is None
    assert HostRule(None).refuses([(b"host", b"a@b")]) == 400


# -- forgery


@pytest.mark.parametrize(
    ("headers", "bearer", "passes"),
    [
        ({"sec-fetch-site": "same-origin", "cookie": "a=b"}, False, True),
        ({"sec-fetch-site": "none", "cookie": "a=b"}, False, True),
        ({"sec-fetch-site": "same-site", "cookie": "a=b"}, False, False),
        ({"sec-fetch-site": "cross-site", "cookie": "a=b"}, False, False),
        ({"sec-fetch-site": "cross-site", "cookie": "a=b", "origin": OWN[0]}, False, False),
        ({"sec-fetch-site": "nonsense", "cookie": "a=b"}, False, False),
        ({"origin": "http://127.0.0.1:8778", "cookie": "a=b"}, False, True),
        ({"origin": "http://127.0.0.1:8779", "cookie": "a=b"}, False, False),
        ({"origin": "https://127.0.0.1:8778", "cookie": "a=b"}, False, False),
        ({"origin": "http://127.0.0.1:8778.evil.example", "cookie": "a=b"}, False, False),
        ({"origin": "null", "cookie": "a=b"}, False, False),
        ({"origin": "", "cookie": "a=b"}, False, False),
        ({"origin": "http://127.0.0.1:8778/", "cookie": "a=b"}, False, False),
        ({"origin": "http://x@127.0.0.1:8778", "cookie": "a=b"}, False, False),
        ({"cookie": "a=b"}, False, False),
        ({"cookie": "a=b"}, True, False),
        ({}, False, False),
        ({}, True, True),
        ({"sec-fetch-site": "cross-site"}, True, True),
        ({"sec-fetch-site": "cross-site", "cookie": "a=b"}, True, False),
    ],
)
def test_DA2_where_a_writing_request_comes_from_decides(
    headers: dict[str, str], bearer: bool, passes: bool
) -> None:
    assert (csrf.origin_refusal(headers, OWN, bearer=bearer) is None) is passes


def test_DA2_the_form_must_repeat_the_token_of_the_cookie() -> None:
    token = csrf.new_token()
    assert csrf.token_refusal(token, token) is None
    for cookie, field in [
        (token, csrf.new_token()),
        (None, token),
        (token, None),
        ("", ""),
        ("short", "short"),
    ]:
        assert csrf.token_refusal(cookie, field) is not None


# -- headers


def test_the_policy_allows_nothing_but_our_own_origin() -> None:
    policy = security_headers()["content-security-policy"]
    for word in ("unsafe", "data:", "*", "http:", "blob:"):
        assert word not in policy
    assert "frame-ancestors 'none'" in policy
    assert security_headers()["x-frame-options"] == "DENY"
    assert security_headers()["referrer-policy"] == "same-origin"
    assert "strict-transport-security" not in security_headers()


def test_embedding_has_to_be_allowed_by_origin() -> None:
    headers = security_headers(frame_ancestors=["https://ops.example.org"])
    assert "frame-ancestors https://ops.example.org" in headers["content-security-policy"]
    assert "x-frame-options" not in headers


# -- limits


def stream(*chunks: bytes) -> Any:
    messages = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    messages.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> MutableMapping[str, Any]:
        return messages.pop(0)

    return receive


def test_a_body_is_counted_whatever_length_it_claims() -> None:
    with pytest.raises(Refused) as refused:
        asyncio.run(read_body(stream(b"x" * 600, b"x" * 600), limit=1000, declared="10"))
    assert refused.value.status == 413
    assert asyncio.run(read_body(stream(b"ab", b"cd"), limit=1000, declared=None)) == b"abcd"


@pytest.mark.parametrize(("declared", "status"), [("99999", 413), ("-1", 400), ("1e3", 400), ("x", 400)])
def test_a_claimed_length_is_checked_first(declared: str, status: int) -> None:
    with pytest.raises(Refused) as refused:
        asyncio.run(read_body(stream(b""), limit=1000, declared=declared))
    assert refused.value.status == status


def test_a_form_has_a_bounded_number_of_fields() -> None:
    assert parse_form(b"a=1&b=%FF") == [("a", "1"), ("b", "\ufffd")]
    with pytest.raises(Refused):
        parse_form(b"a=1&" * 3_000)


@pytest.mark.parametrize(
    "body", [b"[" * 33, b'{"a":' * 40 + b"1" + b"}" * 40, b"nope", b"NaN", b"[" * 100_000]
)
def test_json_is_bounded_in_depth_and_must_be_json(body: bytes) -> None:
    with pytest.raises(Refused) as refused:
        parse_json(body)
    assert refused.value.status == 400


def test_brackets_in_strings_do_not_count() -> None:
    assert parse_json(b'{"a": "' + b"[" * 100 + b'\\""}') == {"a": "[" * 100 + '"'}


# -- places to go back to


@pytest.mark.parametrize(
    "hostile",
    [
        "https://evil.example",
        "//evil.example",
        "///evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "http:evil.example",
        "javascript:alert(1)",
        "data:text/html,x",
        "/admin/../evil",
        "/admin/jobs/../../x",
        "/admin/jobs//evil.example",
        "/admin/jobs/%2e%2e/x",
        "/admin/jobs/%2F%2Fevil",
        "/admin/jobs/..%2f..",
        "/other",
        "/admin/jobsevil",
        "",
        " /admin/jobs/",
        "/admin/jobs/\n/x",
        "/admin/jobs/\r\nSet-Cookie:a",
        "/admin/jobs/\x00",
        "/admin/jobs/\t",
        "admin/jobs/",
        "?q=1",
        "#x",
        "/admin/jobs/" + "x" * 5000,
        "/admin/jobs/\u2028",
        "//admin/jobs/",
        "/admin/jobs/%5cevil",
        "/admin/jobs/%00",
        "ftp://x",
        "/admin/jobs/./x",
    ],
)
def test_only_paths_under_the_root_are_gone_back_to(hostile: str) -> None:
    assert safe_target(hostile, "/admin/jobs") == "/admin/jobs/"


@pytest.mark.parametrize(
    "good",
    [
        "/admin/jobs",
        "/admin/jobs/",
        "/admin/jobs/jobs?q=a%2F%2Fb&cursor=x",
        "/admin/jobs/queues/show?name=a/b",
    ],
)
def test_our_own_paths_are_kept(good: str) -> None:
    assert safe_target(good, "/admin/jobs") == good


# -- rates


def test_logins_are_slowed_down_by_address_and_in_all() -> None:
    clock = Clock()
    throttle = LoginThrottle(clock)
    for _ in range(5):
        throttle.check("10.0.0.1")
        throttle.failed("10.0.0.1")
    with pytest.raises(Refused) as refused:
        throttle.check("10.0.0.1")
    assert refused.value.status == 429
    assert refused.value.retry_after
    throttle.check("10.0.0.2")
    clock.now += 61
    throttle.check("10.0.0.1")


def test_trying_on_while_refused_makes_the_wait_grow() -> None:
    clock = Clock()
    throttle = LoginThrottle(clock)
    for _ in range(5):
        throttle.failed("a")
    waits = []
    for _ in range(8):
        with pytest.raises(Refused) as refused:
            throttle.check("a")
        waits.append(refused.value.retry_after or 0)
    assert waits[-1] > waits[0]


def test_thirty_wrong_tries_from_anywhere_slow_everybody_down() -> None:
    throttle = LoginThrottle(Clock())
    for n in range(30):
        throttle.failed(f"10.0.0.{n}")
    with pytest.raises(Refused):
        throttle.check("192.168.0.1")


def test_a_rate_opens_again_as_its_window_passes() -> None:
    clock = Clock()
    rate = Rate(2, 60.0, clock)
    assert (rate.add("a"), rate.add("a")) == (0.0, 0.0)
    assert rate.add("a") == 60.0
    assert rate.add("b") == 0.0
    clock.now += 60
    assert rate.add("a") == 0.0


def test_searches_are_bounded_in_all_and_for_each_actor() -> None:
    gate = SearchGate()
    with gate.enter("a"), gate.enter("a"):
        with pytest.raises(Refused), gate.enter("a"):
            pass
        with gate.enter("b"), gate.enter("c"), pytest.raises(Refused), gate.enter("d"):
            pass
    with gate.enter("a"):
        pass


def test_a_body_that_drips_in_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BODY_SECONDS", 0.05)

    async def receive() -> dict[str, object]:
        await asyncio.Event().wait()
        return {}

    with pytest.raises(Refused) as refused:
        asyncio.run(read_body(receive, limit=100, declared=None))
    assert refused.value.status == 408
