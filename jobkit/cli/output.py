"""Printing what a command found: tables for people, tab-separated lines for pipes, JSON, CSV.

Invariant: stdout carries data in the one format that was chosen and nothing else; with JSON it is valid whatever was
found.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import click

from jobkit.cli.errors import CommandError, Failure
from jobkit.cli.exitcodes import ExitCode
from jobkit.cli.shapes import Field, Shape, plain
from jobkit.cli.terminal import ColorChoice, clean, console, json_safe, line
from jobkit.cli.words import absolute, ago, duration, human

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Format", "Output", "OutputOptions", "disarm"]

_GAP: Final = 2
_NARROW: Final = 10
_NUMBERS: Final = frozenset({"integer", "number", "seconds", "count"})
_WHOLE: Final = _NUMBERS | {"time"}
"""Kinds of which a part would say something else."""

Format: TypeAlias = Literal["table", "tsv", "csv", "json", "jsonl"]


@dataclass(slots=True)
class OutputOptions:
    """What was asked for on the command line."""

    format: Format | None = None
    fields: str = ""
    columns: str = ""
    header: bool = False
    color: ColorChoice = "auto"
    quiet: bool = False
    zone: tzinfo = UTC
    zone_name: str = "UTC"
    absolute: bool = False


class Output:
    """Where a command puts its data and its remarks."""

    def __init__(
        self, options: OutputOptions, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.options = options
        self.now = now

    @property
    def format(self) -> Format:
        """The format that was asked for; else a table on a terminal and tab-separated lines in a pipe."""
        return self.options.format or ("table" if sys.stdout.isatty() else "tsv")

    @property
    def json(self) -> bool:
        """Whether errors, too, are to be JSON."""
        return self.options.format in ("json", "jsonl")

    @property
    def human(self) -> bool:
        """Whether people read it."""
        return self.format == "table"

    @property
    def console(self) -> Console:
        """The console on stdout."""
        return console(sys.stdout, self.options.color)

    # -- data

    def items(
        self,
        shape: Shape,
        items: Iterable[object],
        *,
        extra: Mapping[str, object] | None = None,
        empty: str = "nothing found",
        footer: str = "",
    ) -> None:
        """Print a list. `extra` stands beside the items in JSON; `footer` follows a table."""
        fields = self._fields(shape)
        found = list(items)
        if self.format == "json":
            documents = [shape.document(item, fields) for item in found]
            self.document({"schema": shape.id, "items": documents, **plain_dict(extra or {})})
        elif self.format == "jsonl":
            for item in found:
                self.jsonl(shape.document(item, fields))
        elif self.format in ("tsv", "csv"):
            self._delimited(fields, found)
        elif found:
            self._table(fields, found)
        if not found and self.format != "json":
            self.note(empty)
        if footer and self.human:
            self.note(footer)

    def item(self, shape: Shape, item: object, draw: Callable[[Output], None] | None = None) -> None:
        """Print one thing; `draw` shows it to people."""
        fields = self._fields(shape) if self.options.fields else shape.fields
        document = shape.document(item, fields)
        if self.format == "json":
            self.document({"schema": shape.id, **document})
        elif self.format == "jsonl":
            self.jsonl(document)
        elif self.format == "csv":
            self._delimited(fields, [item])
        elif self.format == "tsv":
            for field in fields:
                self.write(f"{field.name}\t{self.flat(field.value(item))}")
        elif draw is not None:
            draw(self)
        else:
            self.pairs({field.column or field.name: self.cell(field, item) for field in fields})

    def document(self, value: Mapping[str, object]) -> None:
        """Print one JSON document."""
        self.write(json_safe(json.dumps(value, ensure_ascii=False, indent=2)))

    def jsonl(self, value: Mapping[str, object]) -> None:
        """Print one JSON object on a line of its own."""
        self.write(json_safe(json.dumps(value, ensure_ascii=False, separators=(", ", ": "))))

    def write(self, text: str) -> None:
        """One line of data, as it is."""
        click.echo(text)

    def flush(self) -> None:
        """Let a reader see what was printed so far."""
        sys.stdout.flush()

    # -- remarks

    def note(self, text: str) -> None:
        """A remark on stderr, unless `-q`."""
        if not self.options.quiet:
            click.echo(clean(text), err=True)

    def warn(self, text: str) -> None:
        """A warning on stderr."""
        click.echo(f"warning: {clean(text)}", err=True)

    def failure(self, failure: Failure) -> None:
        """An error on stderr, as JSON where the output is."""
        if self.json:
            error = {"code": failure.code.word, "message": failure.message, "hint": failure.hint}
            click.echo(json_safe(json.dumps({"error": error}, ensure_ascii=False)), err=True)
            return
        click.echo(f"error: {clean(failure.message)}", err=True)
        if failure.hint and failure.hint not in failure.message:
            click.echo(f"  {clean(failure.hint)}", err=True)

    # -- for people

    def pairs(self, pairs: Mapping[str, object]) -> None:
        """Names and values below each other."""
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in pairs.items():
            table.add_row(Text(name), value if isinstance(value, Text) else Text(clean(self.show(value))))
        self.console.print(table)

    def show(self, value: object) -> str:
        """A value in words; times absolute, with zone and distance."""
        if isinstance(value, datetime):
            return f"{self.time(value)} ({ago(value, self.now())})"
        if isinstance(value, timedelta):
            return duration(value)
        return human(plain(value)) if not hasattr(value, "precision") else str(getattr(value, "text", value))

    def time(self, value: datetime) -> str:
        """An absolute time in the zone of `--tz`, with the zone."""
        return absolute(value, self.options.zone)

    def cell(self, field: Field, item: object) -> str:
        """A value in a table's cell; times relative unless asked otherwise."""
        if field.show is not None:
            return line(field.show(item))
        value = field.value(item)
        if isinstance(value, datetime):
            return self.time(value) if self.options.absolute else ago(value, self.now())
        return line(self.show(value))

    def _table(self, fields: Sequence[Field], items: Sequence[object]) -> None:
        from rich.table import Table
        from rich.text import Text

        out = self.console
        columns = _fitting(
            [
                Column(
                    field, (field.column or field.name).upper(), [self.cell(field, item) for item in items]
                )
                for field in fields
            ],
            out.width,
        )
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
        for column in columns:
            side: Literal["left", "right"] = "right" if column.field.kind in _NUMBERS else "left"
            table.add_column(
                Text(column.title), justify=side, no_wrap=True, overflow="ellipsis", width=column.width
            )
        for number, item in enumerate(items):
            table.add_row(*(Text(c.cells[number], style=_style(c.field, item)) for c in columns))
        out.print(table)

    # -- for pipes

    def _delimited(self, fields: Sequence[Field], items: Iterable[object]) -> None:
        if self.options.header:
            self._row([field.name for field in fields])
        for item in items:
            self._row([self.flat(field.value(item)) for field in fields])

    def _row(self, cells: list[str]) -> None:
        if self.format == "tsv":
            self.write("\t".join(cells))
            return
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="").writerow([disarm(cell) for cell in cells])
        self.write(buffer.getvalue())

    def flat(self, value: object) -> str:
        """A value in one cell: nothing is empty, numbers have no commas, structures are JSON."""
        if hasattr(value, "precision"):
            value = getattr(value, "value", value)
        found = plain(value)
        if found is None:
            return ""
        if isinstance(found, bool):
            return "true" if found else "false"
        if isinstance(found, list) and all(isinstance(item, str) for item in found):
            return line(",".join(str(item) for item in found))
        if isinstance(found, (dict, list)):
            return line(json.dumps(found, ensure_ascii=False, separators=(",", ":")))
        return line(str(found))

    def _fields(self, shape: Shape) -> tuple[Field, ...]:
        """The fields that were picked: `--json=a,b`, `--columns a,b`; else all in JSON, the columns elsewhere."""
        wanted = self.options.fields or self.options.columns
        if not wanted:
            return shape.fields if self.json else shape.columns
        try:
            return shape.pick([name.strip() for name in wanted.split(",") if name.strip()])
        except LookupError as error:
            known = ", ".join(field.name for field in shape.fields)
            raise CommandError(
                f"there is no field {error.args[0]!r}", ExitCode.USAGE, hint=f"fields are: {known}"
            ) from None


@dataclass(slots=True)
class Column:
    """One column of a table: its texts, and the width that it gets."""

    field: Field
    title: str
    cells: list[str]
    width: int = 0

    @property
    def least(self) -> int:
        """Below this width it says nothing, or something else."""
        return self.width if self.field.whole or self.field.kind in _WHOLE else min(self.width, _NARROW)

    @property
    def empty(self) -> bool:
        """Whether no row has anything there."""
        return all(cell in ("–", "") for cell in self.cells)


def _fitting(columns: list[Column], available: int) -> list[Column]:
    """The columns that fit: the widest give way first, then empty ones go, then those on the right."""
    from rich.cells import cell_len

    for column in columns:
        column.width = max(cell_len(column.title), *map(cell_len, column.cells))
    kept = list(columns)
    while len(kept) > 1 and sum(c.least for c in kept) + _GAP * (len(kept) - 1) > available:
        kept.remove(next((column for column in kept if column.empty), kept[-1]))
    room = available - _GAP * (len(kept) - 1)
    while sum(c.width for c in kept) > room:
        wide = [column for column in kept if column.width > column.least]
        if not wide:
            break
        max(wide, key=lambda column: column.width).width -= 1
    return kept


def plain_dict(values: Mapping[str, object]) -> dict[str, object]:
    """A mapping with plain JSON values."""
    return {key: plain(value) for key, value in values.items()}


def _style(field: Field, item: object) -> str:
    return field.style(item) if field.style is not None else ""


def disarm(cell: str) -> str:
    """A spreadsheet must not take a cell for a formula; numbers stay numbers."""
    if cell[:1] not in ("=", "+", "-", "@") or _is_number(cell):
        return cell
    return f"'{cell}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
