"""A Discord bot that answers mentions in channels and threads, and direct messages, from your documentation.

pip install /path/to/mintlify-async discord.py
set DISCORD_TOKEN, MINTLIFY_ASSISTANT_API_KEY, MINTLIFY_DOMAIN and
MINTLIFY_SITE (such as https://docs.acme.com, so that links are complete); python discord_bot.py
"""

import asyncio
import logging
import os
import re
import signal
from contextlib import suppress

import discord

from mintlify_async import (
    Limit,
    MintlifySession,
    Quota,
    QuotaExceededError,
    SQLiteStore,
    StreamError,
    extras_markdown,
)

HINT = "Ask me a question about the documentation, such as: How do I log in?"
SORRY = "Sorry, I could not answer that. Please ask again in a moment."
ENOUGH = "That is enough for now. Please ask again later."
SHARE = Limit(20, per=3600)  # questions of each person in any hour


class Bot(discord.Client):
    """Answers questions. A channel, a thread or a direct chat is one conversation."""

    def __init__(self, session: MintlifySession) -> None:
        intents = discord.Intents(guilds=True, messages=True, message_content=True)
        super().__init__(intents=intents, allowed_mentions=discord.AllowedMentions.none())
        self.session, self.store = session, SQLiteStore("discord.sqlite")
        self.answering: dict[int, asyncio.Task[None]] = {}  # by the question's id

    async def on_message(self, message: discord.Message) -> None:
        """Answer a person who mentions the bot, or writes to it."""
        if message.author.bot or self.user is None:
            return
        if message.guild is None or self.user in message.mentions:
            task = self.answering[message.id] = asyncio.create_task(self.answer(message))
            task.add_done_callback(lambda _: self.answering.pop(message.id))
            await task

    async def on_raw_message_delete(self, deleted: discord.RawMessageDeleteEvent) -> None:
        """Stop the answer to a question that was deleted, here and at the service."""
        if deleted.message_id in self.answering:
            self.answering[deleted.message_id].cancel()

    async def answer(self, message: discord.Message) -> None:
        """Show the answer while it grows. A long one continues in the next message."""
        where, question = f"discord-{message.channel.id}", re.sub(r"<@[!&]?\d+>", "", message.content).strip()
        fp, store = f"discord-{message.author.id}", self.store
        chat = self.session.conversation(
            fp=fp, owner=where, id=where, store=store, busy="queue", max_messages=20
        )
        sent: list[discord.Message] = []
        try:
            if not question:  # only the mention; nothing is sent to the service
                await message.reply(HINT)
                return
            async with chat.ask(question) as reply:
                async for edit in reply.edits(every=1.2, limit=2000, tail=extras_markdown):
                    if edit.index == len(sent):
                        sent.append(await message.reply(edit.text, suppress_embeds=True))
                    else:
                        await sent[-1].edit(content=edit.text)
                if reply.aborted:
                    raise StreamError("the service ended it early")
            if not sent:
                await message.reply("I found nothing to say about that.")
        except QuotaExceededError:
            with suppress(Exception):
                await message.reply(ENOUGH)
        except Exception:  # of the service, or of Discord, which may refuse a message
            logging.exception("no answer in %s", where)
            with suppress(Exception):  # of the same kind
                await message.reply(SORRY)

    async def close(self) -> None:
        """Stop the running answers, and disconnect."""
        for task in self.answering.values():
            task.cancel()
        await super().close()


async def main() -> None:
    quota = Quota(ask_per_user=SHARE, store=SQLiteStore("discord.sqlite"))
    async with MintlifySession(quota=quota) as session, Bot(session) as bot:
        session.check("assistant")
        await bot.start(os.environ["DISCORD_TOKEN"])


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # exits like Ctrl-C
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
