"""Closing what has nothing to close, so that stores are closed like sessions and replies."""

from __future__ import annotations

__all__ = ["NothingToClose"]


class NothingToClose:
    """A store that holds nothing open between two calls."""

    async def close(self) -> None:
        """Do nothing: nothing stays open between two calls. What was stored stays, and can be used."""

    aclose = close
