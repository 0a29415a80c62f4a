"""A fact that could not be had, as a value: never a zero, an empty text or an exception."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Unavailable:
    """Stands where a measured fact would.

    Args:
        reason: Why there is no fact, with what was found.
        remedy: What the user can do to get it; empty where there is nothing to do.
    """

    reason: str
    remedy: str = ""
