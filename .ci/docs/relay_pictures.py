"""Makes the pictures of the relay's page with a finished answer, in light and in dark.

``tox -e docs`` writes them. Without a browser or npm, it says so and keeps the existing pictures.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "mintlify_async" / "docs" / "images"
SIZE = {"width": 760, "height": 890}
QUESTION = "How do I log in without a browser?"
ANSWER = """Create a token under **Settings → Access tokens**, and give it to the CLI in a variable. No
browser is opened, and the token works [until you revoke it](/tokens#revoke).

```python
import os
import subprocess

environment = {**os.environ, "ACME_TOKEN": token}
subprocess.run(["acme", "login"], env=environment, check=True)
```

| A token for | lives | may write |
|---|--:|---|
| a person | 90 days | yes |
| continuous integration | 1 year | only with `--write` |

```suggestions
(Revoke a token)[/tokens#revoke]
(Single sign-on)[/sso]
```
"""
SOURCES = [("Access tokens", "/tokens"), ("The CLI in continuous integration", "/cli/ci")]


async def take() -> dict[str, bytes]:
    """Return the pictures by the names of their files.

    Raises:
        pytest.skip.Exception: There is no browser or no npm, or a package is not installed.
    """
    from tests.support.relay_shop import shop  # it is skipped without FastAPI

    pictures: dict[str, bytes] = {}
    async with shop("7") as here:
        await here.page.set_viewport_size(SIZE)
        here.service.script.ask(text=ANSWER, sources=SOURCES)
        await here.ask(QUESTION)
        await here.status("ready")
        await here.page.get_by_role("button", name="Copy answer").wait_for()
        await here.page.mouse.move(0, 0)
        for scheme in ("light", "dark"):
            await here.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            pictures[f"relay-{scheme}.png"] = await here.page.screenshot(caret="hide")
    return pictures


def write() -> None:
    """Write the pictures, if they can be taken here."""
    try:
        pictures = asyncio.run(take())
    except pytest.skip.Exception as reason:
        print(f"The pictures of the relay's page stay as they are: {reason}")
        return
    for name, picture in pictures.items():
        (IMAGES / name).write_bytes(picture)


if __name__ == "__main__":
    write()
