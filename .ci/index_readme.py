"""Makes the README for a package index, where links to files lead nowhere. Hatchling calls it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


def for_an_index(readme: str) -> str:
    """Return the README without pictures and links of the repository. The words of a link stay."""
    text = re.sub(r"<picture>.*?</picture>|!\[[^\]]*\]\((?!https?:)[^)]*\)", "", readme, flags=re.DOTALL)
    text = re.sub(r"\[([^\]]+)\]\((?!https?:)[^)]*\)", r"\1", text)
    return re.sub(r"<!--.*?-->\n|\n(?=\n\n)", "", text)


class IndexReadme(MetadataHookInterface):
    """Sets the field ``readme``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Read README.md of the project."""
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": for_an_index(readme)}
