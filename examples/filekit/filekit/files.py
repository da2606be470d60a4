"""What filekit does to files, without a word about jobs: every function may run twice with the same
result.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

SKIPPED = {
    ".git",
    ".venv",
    ".demo",
    ".bench",
    "__pycache__",
    "node_modules",
    "build",
    ".mypy_cache",
    ".hypothesis",
}
IMAGES = {".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp"}
CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one file. Lines and words are 0 for files that are not UTF-8 text."""

    path: str
    size: int
    sha256: str
    lines: int
    words: int


def files_below(folder: Path) -> Iterator[Path]:
    """All regular files below `folder`, in a stable order, without version control and caches."""
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if f not in SKIPPED and not f.startswith(".venv"))
        for name in sorted(names):
            path = Path(here, name)
            if path.is_file() and not path.is_symlink():
                yield path


def is_image(path: Path) -> bool:
    """True where the name says that it is an image."""
    return path.suffix.lower() in IMAGES


def facts_of(path: Path) -> Facts:
    """Read the file once, in chunks, and count."""
    digest = hashlib.sha256()
    size = lines = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            size += len(chunk)
            lines += chunk.count(b"\n")
    words = _words(path)
    return Facts(str(path), size, digest.hexdigest(), lines if words is not None else 0, words or 0)


def _words(path: Path) -> int | None:
    try:
        with path.open(encoding="utf-8") as file:
            return sum(len(line.split()) for line in file)
    except UnicodeDecodeError:
        return None


def facts_file(output: Path, path: str) -> Path:
    """Where the facts of `path` are kept."""
    return output / "facts" / (hashlib.sha256(path.encode()).hexdigest()[:32] + ".json")


def write_facts(output: Path, facts: Facts) -> None:
    """Keep the facts; a reader sees the old file or the new one, never half of one."""
    _replace(facts_file(output, facts.path), json.dumps(asdict(facts)).encode())


def read_facts(output: Path, path: str) -> Facts:
    """The facts of `path`; FileNotFoundError where there are none yet."""
    return Facts(**json.loads(facts_file(output, path).read_bytes()))


def write_thumbnail(path: Path, output: Path, size: int) -> Path:
    """A PNG of at most `size` pixels a side; raises PIL.UnidentifiedImageError for what is no image."""
    from PIL import Image

    target = output / "thumbnails" / (hashlib.sha256(str(path).encode()).hexdigest()[:32] + ".png")
    target.parent.mkdir(parents=True, exist_ok=True)
    with Image.open(path) as image:
        image.thumbnail((size, size))
        with tempfile.NamedTemporaryFile(dir=target.parent, suffix=".png", delete=False) as file:
            image.convert("RGBA").save(file, format="PNG")
    os.replace(file.name, target)
    return target


def write_catalogue(output: Path, folder: str, facts: list[Facts]) -> Path:
    """One page about all files: the sums first, then the largest files."""
    largest = sorted(facts, key=lambda f: (-f.size, f.path))[:20]
    lines = [
        f"# {folder}",
        "",
        f"{len(facts)} files, {sum(f.size for f in facts)} bytes, {sum(f.words for f in facts)} words",
        "",
        *(f"- {f.path}: {f.size} bytes, {f.words} words, {f.sha256[:12]}" for f in largest),
    ]
    target = output / "catalogue.md"
    _replace(target, "\n".join(lines).encode() + b"\n")
    return target


def _replace(target: Path, data: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as file:
        file.write(data)
    os.replace(file.name, target)
