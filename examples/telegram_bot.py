"""A Telegram bot that answers from your documentation, and remembers each chat."""

import asyncio
import os

from aiogram import Bot, Dispatcher, F
from aiogram.types import Message

from mintlify_async import MintlifyError, MintlifySession, SQLiteConversationStore, extras_markdown

dispatcher = Dispatcher()


@dispatcher.message(F.text)
async def answer(message: Message, session: MintlifySession, store: SQLiteConversationStore) -> None:
    """Show the answer while it grows; a long one goes on in the next message."""
    chat = session.conversation(
        fp=f"telegram-{message.from_user.id}",
        id=f"chat-{message.chat.id}",
        store=store,
        busy="queue",
        max_messages=20,
        keep_messages=100,
    )
    sent: list[Message] = []
    try:
        async with chat.ask(message.text) as reply:
            async for edit in reply.edits(every=1.2, limit=4096, tail=extras_markdown):
                if edit.index == len(sent):
                    sent.append(await message.answer(edit.text))
                else:
                    await sent[-1].edit_text(edit.text)
        if not sent:
            await message.answer("I found nothing to say about that.")
    except MintlifyError:
        await message.answer("Sorry, that went wrong. Please ask again.")
        raise


async def main() -> None:
    """Answer until Ctrl-C."""
    store = SQLiteConversationStore("chats.sqlite")
    async with MintlifySession() as session, Bot(os.environ["TELEGRAM_TOKEN"]) as bot:
        await dispatcher.start_polling(bot, session=session, store=store)


if __name__ == "__main__":
    asyncio.run(main())
