"""Answer a mention in Slack with a stream that grows; call it from your Bolt handler or webhook."""

from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from mintlify_async import MintlifySession, extras_markdown
from mintlify_async.storage import ConversationStore


async def answer(
    slack: AsyncWebClient, event: dict[str, Any], session: MintlifySession, store: ConversationStore
) -> None:
    """Answer *event* in its thread; everybody in the thread talks in one conversation."""
    channel, thread = event["channel"], event.get("thread_ts", event["ts"])
    chat = session.conversation(
        fp=f"slack-{event['user']}", owner=event["team"], id=f"{channel}:{thread}", store=store, busy="queue"
    )
    stream: str | None = None
    async with chat.ask(event["text"]) as reply:
        async for edit in reply.edits(every=1.0, limit=10_000, tail=extras_markdown):
            if stream is None:
                started = await slack.chat_startStream(
                    channel=channel,
                    thread_ts=thread,
                    recipient_team_id=event["team"],
                    recipient_user_id=event["user"],
                    markdown_text=edit.delta,
                )
                stream = started["ts"]
            else:
                await slack.chat_appendStream(channel=channel, ts=stream, markdown_text=edit.delta)
            if edit.final:
                await slack.chat_stopStream(channel=channel, ts=stream)
                stream = None
