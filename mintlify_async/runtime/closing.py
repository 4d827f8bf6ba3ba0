"""Closes objects that have nothing to close, so stores are closed like sessions and replies."""

from __future__ import annotations

__all__ = ["NothingToClose"]


class NothingToClose:
    """A store that holds nothing open between two calls."""

    async def close(self) -> None:
        """Do nothing, because nothing stays open between two calls. The records stay and can be used."""

    aclose = close
