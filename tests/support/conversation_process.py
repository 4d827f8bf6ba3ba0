"""Another process that continues a stored conversation with one question and prints the result as JSON."""

from __future__ import annotations

import asyncio
import json
import sys

from mintlify_async import MintlifySession, SQLiteStore, StoreConflictError


async def main(path: str, id: str, owner: str, question: str) -> None:
    """Print the loaded turns, wait for a line, ask, print the answer."""
    async with MintlifySession() as session:
        chat = session.conversation(fp=owner, store=SQLiteStore(path), id=id)
        await chat.load()
        loaded = chat.to_dict()
        print(json.dumps({"messages": loaded["messages"], "thread": loaded["thread"]}), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        try:
            reply = await chat.ask(question)
        except StoreConflictError:
            print(json.dumps({"conflict": True}), flush=True)
            await chat.load()
            reply = await chat.ask(question)
        print(json.dumps({"text": reply.text, "messages": len(chat.messages)}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
