"""Passwords: a file of `name:role:hash` lines, hashed with scrypt.

Invariant: a wrong name costs as much time as a wrong password, and no text tells which of them was wrong.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jobkit.errors import ConfigError
from jobkit.hookspecs import Actor

__all__ = ["ROLES", "Users", "hash_password", "verify"]

ROLES: Final = ("viewer", "operator", "admin")
_N, _R, _P, _LENGTH = 2**14, 8, 1, 32


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    secret = password.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(secret, salt=salt, n=n, r=r, p=p, dklen=_LENGTH, maxmem=256 * n * r)


def hash_password(password: str) -> str:
    """`scrypt$n$r$p$salt$hash`; raises ValueError for an empty password."""
    if not password:
        raise ValueError("a password must not be empty")
    salt = secrets.token_bytes(16)
    parts = (base64.b64encode(part).decode() for part in (salt, _scrypt(password, salt, _N, _R, _P)))
    return f"scrypt${_N}${_R}${_P}${'$'.join(parts)}"


def verify(password: str, stored: str) -> bool:
    """Whether the password has this hash; raises ValueError for what is no hash of ours."""
    try:
        name, n, r, p, salt, expected = stored.split("$")
        numbers = int(n), int(r), int(p)
        raw = base64.b64decode(salt, validate=True), base64.b64decode(expected, validate=True)
    except (ValueError, binascii.Error):
        raise ValueError("expected scrypt$n$r$p$salt$hash") from None
    if name != "scrypt" or not (2 <= numbers[0] <= 2**20 and 1 <= numbers[1] <= 32 and 1 <= numbers[2] <= 16):
        raise ValueError("expected scrypt$n$r$p$salt$hash with usual parameters")
    return hmac.compare_digest(_scrypt(password, raw[0], *numbers), raw[1])


@dataclass(frozen=True, slots=True)
class _User:
    role: str
    hash: str


class Users:
    """The users of a password file, read once."""

    def __init__(self, path: str | Path) -> None:
        """Read and check the file; raises ConfigError naming file and line."""
        self._users: dict[str, _User] = {}
        try:
            lines = Path(path).read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"password file {path}: {error}") from None
        for number, line in enumerate(lines, 1):
            if line.strip() and not line.startswith("#"):
                self._add(line.strip(), f"password file {path}, line {number}")
        if not self._users:
            raise ConfigError(f"password file {path}: it names no user")
        self._decoy = hash_password(secrets.token_hex(8))

    def _add(self, line: str, place: str) -> None:
        name, _, rest = line.partition(":")
        role, _, stored = rest.partition(":")
        if not name or role not in ROLES:
            raise ConfigError(f"{place}: expected name:role:hash with a role of {', '.join(ROLES)}")
        try:
            verify("", stored)
        except ValueError as error:
            raise ConfigError(f"{place}: {error}; make one with: jobkit dashboard hash-password") from None
        self._users[name] = _User(role, stored)

    def check(self, name: str, password: str) -> Actor | None:
        """The user, or None for whatever is wrong."""
        user = self._users.get(name)
        right = verify(password, user.hash if user else self._decoy)
        if not right or user is None:
            return None
        return Actor(f"user:{name}", name, "web", frozenset({user.role}))
