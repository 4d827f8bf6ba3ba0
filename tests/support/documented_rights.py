"""The rights that the page about several machines gives, and a use of every method of a store."""

from __future__ import annotations

from pathlib import Path

import mintlify_async
from mintlify_async.storage.store import Store
from mintlify_async.testing.store_cases import BLOCK, A, B, put, values, windows

PAGE = Path(mintlify_async.__file__).parent / "docs" / "how-to" / "several-machines.md"


def documented(start: str) -> str:
    """Return the line of the page that begins with *start*."""
    [line] = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(start)]
    return line


async def use(store: Store) -> None:
    """Read, write, delete, list, count, and give back."""
    limits = windows(hour=(2, 60.0))
    version = await put(store, A, keep=60)
    assert await store.write({A: None, B: b"2"}, expected={A: version}, version="b")
    assert await values(store, A, B) == {B: b"2"}
    assert await store.keys("room/open/") == [B]
    await put(store, BLOCK, keep=60)
    assert not (await store.take(limits, slot="one", block=BLOCK)).taken
    assert await store.write({BLOCK: None}, expected={}, version="c")
    assert (await store.take(limits, slot="one", block=BLOCK)).taken
    await store.refund(limits, slot="one")
    assert (await store.take(limits, slot=None, block=BLOCK)).usage[0].used == 0
