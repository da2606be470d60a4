"""The files that browsers load: a dictionary made at start, never a path into the file system.

Invariant: a URL names a hash and a name of the dictionary, so it can be kept for ever and can name nothing else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Final

from jobkit.core import Core
from jobkit_dashboard.extend import Asset
from jobkit_dashboard.words import said_in, say

__all__ = ["Assets", "File"]

_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class File:
    """One file with its type."""

    content: bytes
    media_type: str


def _own() -> Iterable[tuple[str, bytes]]:
    folder = resources.files("jobkit_dashboard") / "static"
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_file() and any(entry.name.endswith(ending) for ending in _TYPES):
            yield entry.name, entry.read_bytes()


def _texts(files: Mapping[str, bytes]) -> bytes:
    """The module `catalogue.js`: the texts that the scripts say, in the words of the catalogue."""
    scripts = [content.decode() for name, content in files.items() if name.endswith(".js")]
    texts = sorted({text for script in scripts for text in said_in(script)})
    return f"export default {json.dumps({text: say(text) for text in texts}, indent=0)};\n".encode()


def _type(name: str) -> str:
    return next(kind for ending, kind in _TYPES.items() if name.endswith(ending))


def _bundle(files: Mapping[str, bytes]) -> str:
    """One hash for files that import each other."""
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


class Assets:
    """Our own files under one hash, and those of plugins under one for each plugin."""

    def __init__(self, app: Core) -> None:
        own = dict(_own())
        own["catalogue.js"] = _texts(own)
        self._hash = _bundle(own)
        self._files = {(self._hash, name): File(content, _type(name)) for name, content in own.items()}
        self.styles: list[str] = []
        self.modules: list[str] = []
        for plugin, given in app.registry.gather("jobkit_dashboard_assets"):
            try:
                self._add(plugin, list(given))  # type: ignore[call-overload]
            except Exception as error:  # noqa: BLE001 - whatever a plugin gives
                app.registry.failed(plugin, "jobkit_dashboard_assets", error)

    def _add(self, plugin: str, assets: Iterable[Asset]) -> None:
        files: dict[str, tuple[Asset, bytes]] = {}
        for asset in assets:
            name = asset.path.rpartition("/")[2]
            if not name.endswith(".css" if asset.kind == "css" else ".js"):
                raise ValueError(f"{asset.path}: a {asset.kind} must end in .css or .js")
            files[name] = asset, (resources.files(asset.package) / asset.path).read_bytes()
        bundle = _bundle({f"{plugin}/{name}": content for name, (_, content) in files.items()})
        for name, (asset, content) in files.items():
            self._files[bundle, name] = File(content, _type(name))
            (self.styles if asset.kind == "css" else self.modules).append(f"/-/static/{bundle}/{name}")

    def path(self, name: str) -> str:
        """Where one of our own files is, below the root."""
        if (self._hash, name) not in self._files:
            raise KeyError(name)
        return f"/-/static/{self._hash}/{name}"

    def find(self, bundle: str, name: str) -> File | None:
        """The file of an address."""
        return self._files.get((bundle, name))
