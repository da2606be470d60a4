"""The headers that every answer carries.

Invariant: nothing may run, load, frame or be sent anywhere but from and to this origin, and no page is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["IMMUTABLE", "NO_STORE", "security_headers"]

NO_STORE: Final = "no-store"
IMMUTABLE: Final = "public, max-age=31536000, immutable"

_FEATURES: Final = (
    "accelerometer", "autoplay", "camera", "clipboard-read", "display-capture", "encrypted-media", "fullscreen",
    "geolocation", "gyroscope", "hid", "identity-credentials-get", "idle-detection", "magnetometer", "microphone",
    "midi", "payment", "picture-in-picture", "publickey-credentials-get", "screen-wake-lock", "serial", "usb",
    "xr-spatial-tracking",
)  # fmt: skip


def security_headers(*, frame_ancestors: Sequence[str] = (), hsts: bool = False) -> dict[str, str]:
    """By name. `frame_ancestors`: origins that may embed the pages; `hsts` where TLS is ours."""
    ancestors = " ".join(frame_ancestors) or "'none'"
    policy = (
        "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; object-src 'none'; "
        f"frame-ancestors {ancestors}"
    )
    headers = {
        "content-security-policy": policy,
        "x-content-type-options": "nosniff",
        # Not `no-referrer`: with that, browsers send `Origin: null` with forms and the forgery check would
        # refuse real users.
        "referrer-policy": "same-origin",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "permissions-policy": ", ".join(f"{feature}=()" for feature in _FEATURES),
        "x-robots-tag": "noindex, nofollow",
        # Links to documentation elsewhere: not even their names are looked up before somebody follows one.
        "x-dns-prefetch-control": "off",
    }
    if not frame_ancestors:
        headers["x-frame-options"] = "DENY"
    if hsts:
        headers["strict-transport-security"] = "max-age=31536000"
    return headers
