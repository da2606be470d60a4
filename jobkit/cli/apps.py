"""Loading the app that `--app module:attr` names.

Invariant: `there is no such module or attribute` and `it failed while being imported` are told apart.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from types import ModuleType
from typing import TYPE_CHECKING

from jobkit.cli.errors import CommandError
from jobkit.cli.exitcodes import ExitCode

if TYPE_CHECKING:
    from jobkit.core import Core

__all__ = ["load_app", "load_modules"]

CWD_HINT = "modules are looked for in the working directory and where Python looks"


def load_app(spec: str) -> Core:
    """The core of the app `module:attribute`. Raises CommandError with the code for configuration."""
    from jobkit.core import Core

    module_name, _, attribute = spec.partition(":")
    found: object = load_module(module_name, f"app {spec}")
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise _refused(
                f"app {spec}: not found: the module {module_name} has no attribute {attribute!r}"
                f"{_nearest(attribute, found)}"
            ) from None
    core = getattr(found, "core", found)
    if not isinstance(core, Core):
        raise _refused(f"app {spec}: {attribute} is a {type(found).__name__}, expected a Jobkit")
    return core


def load_modules(names: tuple[str, ...]) -> None:
    """Import the modules of `imports`, so that what is wrong with them is told as precisely as for an app."""
    for name in names:
        load_module(name, f"imports {name}")


def load_module(name: str, what: str) -> ModuleType:
    """Import a module. Raises CommandError."""
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise _refused(f"{what}: not found: there is no module {error.name!r}", CWD_HINT) from None
        raise _failed(what, error) from error
    except BaseException as error:
        raise _failed(what, error) from error


def _refused(message: str, hint: str = "") -> CommandError:
    return CommandError(message, ExitCode.CONFIG, hint=hint)


def _failed(what: str, error: BaseException) -> CommandError:
    text = "".join(traceback.format_exception_only(error)).strip().splitlines()
    return _refused(
        f"{what}: failed while importing: {text[-1] if text else type(error).__name__}{_place(error)}",
        "run again with --debug for the traceback",
    )


def _place(error: BaseException) -> str:
    """Where in the user's code it failed: the last frame outside of Python's import system."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and frame.filename != __file__
    ]
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def _nearest(name: str, found: object) -> str:
    import difflib

    near = difflib.get_close_matches(name, [known for known in dir(found) if not known.startswith("_")], 1)
    return f"; did you mean {near[0]!r}?" if near else ""
