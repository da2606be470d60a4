"""The command line: `jobkit`, built with click; tables and progress with rich.

Invariant: data goes to stdout and everything else to stderr; a command imports what it needs when it runs, so that
`jobkit --version` and shell completion start quickly.
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command line of this process and exit with its code."""
    from jobkit.cli.process import run

    run()
