"""A Slack bot that answers mentions, direct messages and, if you like, one channel from your documentation.

pip install /path/to/mintlify-async slack-bolt
set SLACK_BOT_TOKEN, SLACK_APP_TOKEN, MINTLIFY_ASSISTANT_API_KEY, MINTLIFY_DOMAIN,
MINTLIFY_SITE and, for a channel whose every message is a question, SLACK_CHANNEL; python slack_bot.py
"""

import asyncio
import logging
import os
import re
import signal
from collections import deque
from contextlib import AsyncExitStack, suppress
from html import unescape
from typing import Any

from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
from slack_bolt.app.async_app import AsyncApp
from slack_bolt.context.say.async_say import AsyncSay
from slack_bolt.context.say_stream.async_say_stream import AsyncSayStream
from slack_sdk.errors import SlackApiError
from slack_sdk.http_retry.builtin_async_handlers import AsyncRateLimitErrorRetryHandler
from slack_sdk.web.async_chat_stream import AsyncChatStream

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

app = AsyncApp(token=os.environ["SLACK_BOT_TOKEN"])
app.client.retry_handlers.append(AsyncRateLimitErrorRetryHandler(max_retry_count=3))
store = SQLiteStore("slack.sqlite")
session = MintlifySession(quota=Quota(ask_per_user=SHARE, store=store))
ENDED = "message_not_in_streaming_state"  # Slack ends a streamed message after about five minutes
answering: dict[str, asyncio.Task[None]] = {}  # by the question's time stamp
seen = deque[str](maxlen=1000)  # time stamps of questions; Slack may send an event again minutes later


@app.event("app_mention")
@app.event("message")
async def on_event(event: dict[str, Any], say: AsyncSay, say_stream: AsyncSayStream) -> None:
    """Answer a question, or stop the answer to one that was deleted."""
    edited = event.get("message", {})  # a deleted question with an answer below it becomes a tombstone
    deleted = edited["ts"] if edited.get("subtype") == "tombstone" else event.get("deleted_ts")
    if deleted in answering:
        answering[deleted].cancel()
    open_to_all = event.get("channel_type") == "im" or event["channel"] == os.environ.get("SLACK_CHANNEL")
    asked = (event["type"] == "app_mention") != open_to_all and not event.keys() & {"subtype", "bot_id"}
    if asked and event["ts"] not in seen:
        seen.append(event["ts"])
        task = answering[event["ts"]] = asyncio.create_task(answer(event, say, say_stream))
        task.add_done_callback(lambda _: answering.pop(event["ts"]))
        await task


async def answer(event: dict[str, Any], say: AsyncSay, say_stream: AsyncSayStream) -> None:
    """Answer in the question's thread. All people in it share one conversation."""
    thread, question = event.get("thread_ts", event["ts"]), unescape(re.sub(r"<@\w+>", "", event["text"]))
    fp, owner, where = f"slack-{event['user']}", f"slack-{event.get('team')}", f"{event['channel']}-{thread}"
    chat = session.conversation(fp=fp, owner=owner, id=where, store=store, busy="queue", max_messages=20)
    stream, index = None, -1
    try:
        if not question.strip():  # only the mention; nothing is sent to the service
            await say(HINT, thread_ts=thread)
            return
        async with chat.ask(question.strip()) as reply:
            async for edit in reply.edits(every=1.0, limit=10_000, tail=extras_markdown):
                if stream is None or edit.index != index:  # a long answer continues in the next message
                    await stop(stream)
                    stream, index = await say_stream(buffer_size=1), edit.index
                try:
                    await stream.append(markdown_text=edit.delta)
                except SlackApiError as error:
                    if error.response["error"] != ENDED:
                        raise
                    stream = await say_stream(buffer_size=1)  # a new message gets the remaining text
                    await stream.append(markdown_text=edit.delta)
            if reply.aborted:
                raise StreamError("the service ended it early")
    except QuotaExceededError:
        with suppress(Exception):
            await say(ENOUGH, thread_ts=thread)
    except Exception:  # of the service, or of Slack, which may refuse a message
        logging.exception("no answer in %s", where)
        with suppress(Exception):  # of the same kind
            await say(SORRY, thread_ts=thread)
    finally:
        await stop(stream)


async def stop(stream: AsyncChatStream | None) -> None:
    if stream is not None:
        try:
            await stream.stop()
        except Exception as error:
            if not isinstance(error, SlackApiError) or error.response["error"] != ENDED:
                logging.warning("a message was not ended: %s", error)


async def main() -> None:
    session.check("assistant")
    handler: Any = AsyncSocketModeHandler(app, os.environ["SLACK_APP_TOKEN"])  # its methods have no types
    async with session, AsyncExitStack() as stack:
        stack.push_async_callback(handler.close_async)
        await handler.start_async()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # exits like Ctrl-C
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
