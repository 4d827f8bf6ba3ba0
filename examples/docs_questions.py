"""Asks questions in CI that the documentation must answer. It fails if an answer or its cited page is lost.

pip install /path/to/mintlify-async pyyaml
python docs_questions.py docs_questions.yaml

The file has a list. `says` and `cites` are optional. Each question costs the credits of one answer:

    - ask: How do I log in?
      says: [password]                # words of the answer, in any case
      cites: [/login]                 # pages that must be among its sources
"""

import asyncio
import sys
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import yaml
from attrs import field, frozen, validators

from mintlify_async import Answer, MintlifyError, MintlifySession

AT_ONCE = 4  # running answers


@frozen
class Expected:
    ask: str = field(validator=validators.instance_of(str))
    says: list[str] = field(factory=list[str], validator=validators.instance_of(list))
    cites: list[str] = field(factory=list[str], validator=validators.instance_of(list))


def read(path: Path) -> list[Expected]:
    """Read the questions. A misspelt name, or a value that is no list, is an error, not an answer."""
    found = cast("list[dict[str, Any]] | None", yaml.safe_load(path.read_text("utf-8")))
    if not found:
        raise SystemExit(f"{path} has no questions")
    return [Expected(**one) for one in found]


def page(address: str) -> str:
    """Return the path of a page, without the site, the section and the slash at its end."""
    return urlsplit(address).path.rstrip("/") or "/"


def lost(answer: Answer, expected: Expected) -> list[str]:
    """Return the expected words and pages that *answer* lacks."""
    if answer.aborted or not answer.text:
        return ["was ended early" if answer.aborted else "has no text"]
    cited = {page(source.url) for source in answer.sources if source.url}
    unsaid = [f"does not say {word!r}" for word in expected.says if word.lower() not in answer.text.lower()]
    return unsaid + [f"does not cite {one}" for one in expected.cites if page(one) not in cited]


async def check(session: MintlifySession, expected: Expected, free: asyncio.Semaphore) -> bool:
    async with free:
        try:
            missing = lost(await session.ask(expected.ask, fp="ci"), expected)
        except MintlifyError as error:
            missing = [f"{type(error).__name__}: {error}"]
    print("LOST" if missing else "ok  ", expected.ask, *missing, sep="\n      " if missing else "  ")
    return not missing


async def main(path: Path) -> int:
    questions, free = read(path), asyncio.Semaphore(AT_ONCE)
    async with MintlifySession() as session:
        session.check("assistant")
        answered = await asyncio.gather(*(check(session, one, free) for one in questions))
    print(f"{sum(answered)} of {len(questions)} questions are answered")
    return 0 if all(answered) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(Path(sys.argv[1]))))
