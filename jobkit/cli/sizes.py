"""Sizes as people type them."""

from __future__ import annotations

import click

__all__ = ["SizeParam"]


class SizeParam(click.ParamType[int]):
    """A size in bytes such as `512MB`."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse it; wrong ones are usage errors."""
        from jobkit.config import parse_size
        from jobkit.errors import ConfigError

        try:
            return parse_size(value)
        except ConfigError as error:
            self.fail(str(error), param, ctx)
