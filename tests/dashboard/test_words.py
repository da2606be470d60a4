"""The texts of the pages and their catalogue."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from jinja2 import DictLoader, Environment

from jobkit import Jobkit
from jobkit_dashboard import Dashboard, words
from jobkit_dashboard.i18n import FILE, texts
from jobkit_dashboard.words import TemplateWords, said_in, texts_of
from tests.dashboard.support import Client, by_header


def test_the_catalogue_has_every_text_and_no_other() -> None:
    """If this fails: python -m jobkit_dashboard.i18n"""
    assert set(json.loads(FILE.read_text("utf-8"))) == texts()


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("<p>Two words</p>", ["Two words"]),
        ("<p>Type {{ n }} to go on</p>", ["Type {1} to go on"]),
        ('<a title="Copy {{ id }}" href="/jobs">{{ id }}</a>', ["Copy {1}"]),
        ('<a href="{{ url }}" class="open now">Open</a>', ["Open"]),
        ("<code>jobkit run</code><pre>more {{ x }}</pre> words", ["words"]),
        ("{% if x %}one thing{% else %}another{% endif %}", ["one thing", "another"]),
        ("<b>·</b> {{ n }} / {{ m }}", []),
    ],
)
def test_texts_are_told_from_markup_and_values(source: str, found: list[str]) -> None:
    assert [text for text in texts_of(source) if re.search("[A-Za-z]{2}", text)] == found


def drawn(source: str, **said: str) -> str:
    class Other(TemplateWords):
        words = said

    environment = Environment(loader=DictLoader({"t": source}), extensions=[Other], autoescape=True)
    return environment.get_template("t").render(n=3, of=9, name="<i>")


def test_a_translation_may_put_the_values_in_another_order() -> None:
    said = {"{1} of {2} done": "von {2} sind {1} fertig"}
    assert drawn("<p>{{ n }} of {{ of }} done</p>", **said) == "<p>von 9 sind 3 fertig</p>"


def test_what_a_value_says_is_never_looked_up_and_stays_escaped() -> None:
    assert drawn('<p title="Copy {{ name }}">{{ name }}</p>', **{"Copy {1}": "Kopiere {1}", "<i>": "no"}) == (
        '<p title="Kopiere &lt;i&gt;">&lt;i&gt;</p>'
    )


class _Texts(HTMLParser):
    """What people read on a page, but for commands, values of jobs and what Python puts in."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.feed(html)

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append(" ".join(data.split()))


def test_pages_are_drawn_in_the_words_of_the_catalogue(
    app: Jobkit, ids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    english = words.catalogue()
    monkeypatch.setattr(words, "catalogue", lambda language="en": {key: f"«{key}»" for key in english})
    monkeypatch.setattr("jobkit_dashboard.render._Compiled.kept", {})
    page = Client(Dashboard(app, auth=by_header)).get("/jobs").text
    shown = _Texts(page).texts
    for text in ("«Apply»", "«Sort»", "«More filters»", "«Skip to the content»"):
        assert text in shown
    assert 'aria-label="«Tick all on this page»"' in page


SCRIPTS = [f for f in (Path(words.__file__).parent / "static").glob("*.js") if f.name != "idiomorph.js"]
UNSAID = re.compile(
    r"""(?:\b(?:announce|trouble|status)\(\s*|(?:textContent|title|ariaLabel|placeholder)\s*=\s*|"aria-label",\s*)"""
    r"""["'`](?=[^"'`]*[A-Za-z]{2})|\breturn\s+["'`][A-Za-z]{2}"""
)
"""Where a script would show a text of its own."""


def test_scripts_show_no_text_but_the_catalogues() -> None:
    for file in SCRIPTS:
        source = file.read_text("utf-8")
        assert not UNSAID.findall(re.sub(r"\$\{[^}]*\}", "", source)), file.name
        # Only a text that stands there can be found; the module of `say` itself has none.
        calls = len(re.findall(r"(?<!function )\bsay\(", source))
        assert calls == len(said_in(source)), file.name
    assert UNSAID.search('announce("copied it")') and UNSAID.search("a.textContent = `queue ${name}`")


def test_scripts_get_their_texts_in_the_words_of_the_catalogue(
    app: Jobkit, monkeypatch: pytest.MonkeyPatch
) -> None:
    english = words.catalogue()
    said = {text for file in SCRIPTS for text in said_in(file.read_text("utf-8"))}
    assert said <= set(english)
    plain = Dashboard(app, auth=by_header).assets.path("catalogue.js")
    monkeypatch.setattr(words, "catalogue", lambda language="en": {key: f"«{key}»" for key in english})
    dash = Dashboard(app, auth=by_header)
    path = dash.assets.path("catalogue.js")
    assert path != plain, "browsers keep a file for ever, so other words are another address"
    answer = Client(dash).get(path)
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    found = json.loads(answer.text.removeprefix("export default ").removesuffix(";\n"))
    assert found == {text: f"«{text}»" for text in said}
    assert "paused: {why}" in found
