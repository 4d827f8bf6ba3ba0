"""Closes objects that have nothing to close, so stores are closed like sessions and replies."""

from __future__ import annotations

__all__ = ["NothingToClose"]


class NothingToClose:
    """A store that holds nothing open between two calls."""

    async def close(self) -> None:
        """Nothing needs to be closed; the method exists so that all stores have it. The records stay."""

    aclose = close
