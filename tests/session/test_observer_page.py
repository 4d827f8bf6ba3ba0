"""The page about observability: its observer is right for operations that run at the same time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from page_blocks import blocks_of

import mintlify_async
from mintlify_async import MintlifySession
from mintlify_async.testing import LocalService

PAGE = Path(mintlify_async.__file__).parent / "docs" / "how-to" / "observability.md"


async def test_each_line_names_its_own_operation(service: LocalService, capsys):
    """A question and a job of one ``gather`` are printed with their own names and statuses."""
    (text,) = [block.text for block in blocks_of(PAGE) if "class Measured" in block.text]
    names: dict[str, Any] = {}
    exec(text.partition("\n\n\nasync with")[0], names)
    async with service.session(observer=names["Watch"]()) as session:
        assert isinstance(session, MintlifySession)
        await asyncio.gather(session.ask("Hm?").run(), session.create_job("Fix the typos"))
    lines = sorted(
        line.rpartition(" s")[0].rpartition(" ")[0] for line in capsys.readouterr().out.splitlines()
    )
    assert lines == ["ask 200", "create_job 201"]
