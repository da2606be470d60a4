"""Writes `en.json` anew from the texts that stand in the templates and the code: `python -m jobkit_dashboard.i18n`.

Texts that are there already keep their words; those that nothing uses any more go.
"""

from __future__ import annotations

import json
from pathlib import Path

from jobkit_dashboard.i18n import FILE, texts


def main() -> None:
    """Read, merge, write."""
    known: dict[str, str] = json.loads(Path(FILE).read_text("utf-8"))
    found = {text: known.get(text, text) for text in sorted(texts())}
    Path(FILE).write_text(json.dumps(found, ensure_ascii=False, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
