// Chats of the installed release of ai that ask several questions, without a browser, over real connections.
// The argument is JSON: { address, user, chats, turns, stored }. The output is one JSON list of the chats' turns:
// the error that the page shows after each question, and the text of its last answer.
import { DefaultChatTransport } from "ai";
import { Chat } from "./page_chat.mjs";

const { address, user, chats, turns, stored } = JSON.parse(process.argv[2]);
const newestOnly = { prepareSendMessagesRequest: ({ id, trigger, messages }) => ({ body: { id, trigger, message: messages.at(-1) } }) };
const shown = [];
for (let number = 0; number < chats; number++) {
  const transport = new DefaultChatTransport({
    api: `${address}/api/chat`,
    headers: { "x-user": user },
    ...(stored ? newestOnly : {}),
  });
  const chat = new Chat({ id: `chat-${number}`, transport });
  const states = [];
  for (let turn = 0; turn < turns; turn++) {
    await chat.sendMessage({ text: `Question ${turn}` });
    const text = chat.messages.at(-1).parts.filter((part) => part.type === "text").at(-1)?.text ?? "";
    states.push({ error: chat.error?.message ?? null, text });
  }
  shown.push(states);
}
process.stdout.write(JSON.stringify(shown));
