"""Search finds nothing that display hides: no text, no letter, no count, no order."""

from __future__ import annotations

import pytest

from jobkit.admin.errors import QueryRefused
from jobkit.admin.reads import Reads
from jobkit.core import Core
from jobkit.hookspecs import hookimpl
from tests.admin.conftest import make_app
from tests.admin.support import ADMIN, add, error, row

SECRET = "hunter2abc"
URL_ERROR = (
    "HTTPError: https://deploy:not-a-password@api.example.com/v1/charges?token=not-a-token refused the card"
)


def found(app: Core, query: str) -> list[int]:
    page = Reads(app, ADMIN).jobs(query)
    assert not page.problems, page.problems
    return sorted(job.id for job in page.jobs)


def test_job_errors_are_stored_redacted_and_an_error_search_for_the_secret_finds_nothing(app: Core) -> None:
    (job_id,) = add(app, row(state="discarded", errors=[error(URL_ERROR)]))
    for query in ("error:not-a-password", "not-a-token", "error:not-a", 'error:"token=not"', "deploy"):
        assert found(app, query) == [], query
    for query in ("error:api.example.com", 'error:"refused the card"', "error.class:HTTPError"):
        assert found(app, query) == [job_id], query
    shown = Reads(app, ADMIN).job(job_id)
    assert "not-a-" not in repr(shown)


@pytest.mark.parametrize("sign", ["", "-"])
def test_no_letter_of_a_secret_can_be_found_out_by_any_kind_of_term(app: Core, sign: str) -> None:
    """The same jobs, but for the secret: every query must answer as if both held the same."""
    one, other = add(
        app,
        *(
            row(
                args={"password": secret, "note": f"token={secret}", "card": {"holder": secret}, "n": 1},
                meta={"secret_paths": ["card.holder"], "api_key": secret},
                tags=[f"secret={secret}"],
                errors=[error(f"ValueError: password={secret} wrong")],
            )
            for secret in (SECRET, "zzzzzzzzzz")
        ),
    )
    guesses = [SECRET[:size] for size in range(1, len(SECRET) + 1)] + list("hxzq")
    for guess in guesses:
        for query in (
            *(
                guess,
                f"args:{guess}",
                f"meta:{guess}",
                f"error:{guess}",
                f"tag:*{guess}*",
                f"args.card.holder:{guess}*",
            ),
            *(f"args.note:*{guess}*", f"args.note:token={guess}*", f"tag:secret={guess}*"),
        ):
            ids = found(app, sign + query)
            assert (one in ids) == (other in ids), query


def test_a_path_that_any_rule_hides_is_refused(app: Core) -> None:
    page = Reads(app, ADMIN).jobs("args.password:h*")
    assert page.problems
    assert page.jobs == ()
    with pytest.raises(QueryRefused, match="hidden"):
        Reads(app, ADMIN).states("args.password:h*")


def test_declared_secret_paths_hold_without_the_worker_class(app: Core) -> None:
    (job_id,) = add(
        app,
        row(
            worker="nobody.imports.me",
            args={"card": {"holder": "Ana Lovelace"}},
            meta={"secret_paths": ["card.holder"]},
        ),
    )
    shown = Reads(app, ADMIN).job(job_id)
    assert shown.args == {"card": {"holder": "[redacted]"}}
    assert "Lovelace" not in repr(shown)
    for query in ("Lovelace", "args.card.holder:*", "args.card.holder:Ana*", "args:Ana"):
        ids = found(app, query)
        assert (job_id in ids) == (query == "args.card.holder:*"), query


def test_what_redaction_put_there_is_not_found_either(app: Core) -> None:
    add(app, row(args={"password": SECRET}))
    (plain,) = add(app, row(args={"note": "it was redacted by hand"}))
    assert found(app, "redacted") == [plain]
    assert found(app, '"[redacted]"') == []


def test_facets_suggestions_and_summaries_hold_no_secret(app: Core) -> None:
    add(
        app,
        row(
            args={"password": SECRET, "deep": {"token": SECRET}},
            tags=[f"token={SECRET}", "plain"],
            errors=[error(f"ValueError: api_key={SECRET}")],
        ),
    )
    reads = Reads(app, ADMIN)
    seen = [
        *(
            reads.facets(),
            reads.jobs(),
            reads.suggest("tag:"),
            reads.suggest("args.pass"),
            reads.suggest("args."),
        ),
        *(reads.suggest("args.deep.token:"), reads.suggest("error.class:")),
    ]
    assert SECRET not in repr(seen)
    assert any(term.term == "tag:plain" for facet in reads.facets().facets for term in facet.values)


def test_a_plugins_redaction_counts_in_search(sqlite_url: str) -> None:
    class Mask:
        @hookimpl
        def jobkit_redact(self, value: object, path: str) -> object | None:
            return "[masked]" if path == "args.customer" else None

    app = make_app(sqlite_url, plugins=[Mask()])
    add(app, row(args={"customer": "Erika"}))
    assert found(app, "Erika") == []
    assert found(app, "args.customer:Erika") == []
    app.close()
