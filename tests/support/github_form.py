"""What GitHub shows of Markdown: CommonMark and tables, with the HTML that its schema allows."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.npm_packages import packages_of

HERE = Path(__file__).parent


def program() -> Path:
    """Return the renderer, next to its packages."""
    folder = packages_of((HERE / "github_form.package.json").read_bytes(), "github-form")
    return Path(shutil.copy(HERE / "github_form.mjs", folder))


def shown_on_github(pages: Mapping[str, str]) -> dict[str, Any]:
    """Return the titles, anchors, links, images, texts outside code, and tags of each page."""
    command = ["node", str(program())]
    done = subprocess.run(command, input=json.dumps(dict(pages)), check=True, capture_output=True, text=True)
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown


if __name__ == "__main__":  # `.ci/run` does this while it checks the types
    program()
