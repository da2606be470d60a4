"""Writing audit rows for what is no action of this package: logins, refusals at a route, plugins' actions.

Invariant: rows are only ever added, in the transaction of what they tell of.
"""

from __future__ import annotations

from jobkit.admin._audit_rows import write_audit

__all__ = ["write_audit"]
