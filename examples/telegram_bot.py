"""A Telegram bot that answers from your documentation, and continues each chat.

pip install /path/to/mintlify-async aiogram markdown-it-py
set TELEGRAM_TOKEN, MINTLIFY_ASSISTANT_API_KEY, MINTLIFY_DOMAIN and
MINTLIFY_SITE (such as https://docs.acme.com, so that links are complete); python telegram_bot.py
"""

import asyncio
import logging
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from html import escape
from typing import Any

from aiogram import Bot, Dispatcher, F
from aiogram.client.default import DefaultBotProperties
from aiogram.exceptions import TelegramRetryAfter
from aiogram.types import Message
from markdown_it import MarkdownIt
from markdown_it.token import Token

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
LONGEST_PAUSE = 60  # seconds that Telegram may ask for with 429; after a longer pause the answer would be old

dispatcher = Dispatcher()
answering: set[asyncio.Task[Any]] = set()
MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("strikethrough")
TAGS = {
    "strong_open": "<b>",
    "strong_close": "</b>",
    "em_open": "<i>",
    "em_close": "</i>",
    "s_open": "<s>",
    "s_close": "</s>",
    "link_close": "</a>",
    "softbreak": "\n",
    "hardbreak": "\n",
    "hr": "⎯⎯⎯\n",
    "heading_open": "<b>",
    "heading_close": "</b>\n",
    "paragraph_close": "\n",
}


def telegram_html(markdown: str) -> str:
    """Return *markdown* in Telegram's HTML. It is valid and never empty, even if the text was cut."""
    lines, html, quotes = re.sub("\r\n?", "\n", markdown).split("\n"), "", 0
    for token in MARKDOWN.parse(markdown):
        if token.map and token.level == 0 and html and not lines[token.map[0] - 1].strip():
            html += "\n"  # a blank line
        if token.type == "inline":
            html += inline_html(token.children or [])
        elif token.type in ("fence", "code_block"):
            language = escape(token.info.split()[0]) if token.info.strip() else ""
            code = escape(token.content)
            html += (
                f'<pre><code class="language-{language}">{code}</code></pre>'
                if language
                else f"<pre>{code}</pre>"
            )
            html += "\n"
        elif token.type == "list_item_open":
            html += "  " * (token.level // 2) + (f"{token.info}{token.markup} " if token.info else "• ")
        elif token.type.startswith("blockquote"):  # Telegram has no quotes in quotes
            quotes += token.nesting
            html += "<blockquote>" * (token.nesting > 0 and quotes == 1)
            html = html.rstrip("\n") + "</blockquote>\n" if token.nesting < 0 and not quotes else html
        elif token.type == "list_item_close":
            html += "\n" * (not html.endswith("\n"))
        else:
            html += TAGS.get(token.type, "")
    return html.strip() if re.sub("<[^>]+>", "", html).strip() else escape(markdown)


def inline_html(tokens: Sequence[Token]) -> str:
    """Return the text of a paragraph. A picture becomes a link to it."""
    html = ""
    for token in tokens:
        if token.type == "link_open":
            html += f'<a href="{escape(str(token.attrs["href"]))}">'
        elif token.type == "code_inline":
            html += f"<code>{escape(token.content)}</code>"
        elif token.type == "image":
            is_linked = html.count("<a ") > html.count("</a>")
            text = escape(token.content) or "🖼"
            html += text if is_linked else f'<a href="{escape(str(token.attrs["src"]))}">{text}</a>'
        else:
            html += TAGS.get(token.type) or escape(token.content)
    return html


# Commands such as /start and anonymous senders get no answer, because each answer costs money.
@dispatcher.message(F.text.regexp("[^/]"), F.from_user.is_bot.is_(False), F.sender_chat.is_(None))
async def answer(message: Message, session: MintlifySession, store: SQLiteStore) -> None:
    """Show the answer while it grows. A long one continues in the next message."""
    if not ((user := message.from_user) and (task := asyncio.current_task())):
        return
    answering.add(task)
    task.add_done_callback(answering.discard)
    where, html = f"telegram-{message.chat.id}-{message.message_thread_id or 0}", ""
    chat = session.conversation(
        fp=f"telegram-{user.id}", owner=where, id=where, store=store, busy="queue", max_messages=20
    )
    every = 1.2 if message.chat.type == "private" else 3.1  # a group takes 20 messages per minute
    sent: list[Message] = []
    question = re.sub(
        r"@\w*bot\b", "", message.text or "", flags=re.IGNORECASE
    ).strip()  # without the mention
    try:
        if not question:  # nothing is sent to the service
            await message.answer(HINT)
            return
        async with chat.ask(question) as reply:
            async for edit in reply.edits(every=every, limit=4096, tail=extras_markdown):
                before, html = html, telegram_html(edit.text)
                if edit.index == len(sent):
                    sent.append(await message.answer(html))
                elif html != before:  # Telegram refuses an edit that changes nothing
                    await sent[-1].edit_text(html)
            if reply.aborted:
                raise StreamError("the service ended it early")
        if not sent:
            await message.answer("I found nothing to say about that.")
    except QuotaExceededError:
        with suppress(Exception):
            await message.answer(ENOUGH)
    except Exception:  # of the service, or of Telegram, which may refuse a message
        logging.exception("no answer in %s", where)
        with suppress(Exception):  # of the same kind
            await message.answer(SORRY)


async def patient(make_request: Any, bot: Bot, method: Any) -> Any:
    """Send a request to Telegram. If it asks for a pause, send the request again after that."""
    for _ in range(3):
        try:
            return await make_request(bot, method)
        except TelegramRetryAfter as error:
            if error.retry_after > LONGEST_PAUSE:
                raise
            await asyncio.sleep(error.retry_after)
    return await make_request(bot, method)


@dispatcher.shutdown()
async def stop() -> None:
    """Stop the running answers, here and at the service."""
    for task in answering:
        task.cancel()
    await asyncio.gather(*answering, return_exceptions=True)


async def main() -> None:
    logging.basicConfig(level=logging.INFO)
    store, style = SQLiteStore("telegram.sqlite"), DefaultBotProperties(parse_mode="HTML")
    quota = Quota(ask_per_user=SHARE, store=store)
    async with (
        MintlifySession(quota=quota) as session,
        Bot(os.environ["TELEGRAM_TOKEN"], default=style) as bot,
    ):
        session.check("assistant")
        bot.session.middleware(patient)
        await dispatcher.start_polling(bot, session=session, store=store)


if __name__ == "__main__":
    asyncio.run(main())
