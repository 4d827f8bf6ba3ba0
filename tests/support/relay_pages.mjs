// What pages do, without a browser: chats of the installed release of ai over real connections.
// One JSON line on stdin for each page's story; one line on stdout for what its last life shows.
//   { chat, lives: [{ address, milliseconds | null, stop: address | null }] }
// A life is a page between two loads. The first asks; each later one resumes, with the messages that were stored.
// After its milliseconds a life ends as by a reload: its connections are cut. With `stop`, a request to that
// address stops the answer instead, as from another tab, so long after it began. null: the life lasts until the
// answer ends. The first life's time begins when the service has the question, of which a line { arrived: chat } tells.
import { DefaultChatTransport } from "ai";
import { createInterface } from "node:readline";
import { Chat } from "./page_chat.mjs";

const arrived = new Map(); // by chat: true when the service has its question, or what to call then
const arrival = (chat) =>
  new Promise((resolve) => (arrived.get(chat) === true ? resolve() : arrived.set(chat, resolve)));
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

async function told({ chat: id, lives }) {
  const headers = { "x-user": `reader of ${id}` }; // of one reader, at most two answers go on unread
  let stored = []; // what a page keeps: the question when it is asked, the answer when it is whole
  let shown = {};
  let stopped = null; // when the response to Stop came
  for (const [number, { address, milliseconds, stop }] of lives.entries()) {
    const closing = new AbortController();
    let begin;
    const begun = new Promise((resolve) => (begin = resolve));
    const transport = new DefaultChatTransport({
      api: `${address}/api/chat`,
      headers,
      fetch: (url, options) => {
        const answered = fetch(url, { ...options, signal: closing.signal });
        answered.then(begin, begin);
        return answered;
      },
      prepareReconnectToStreamRequest: ({ api, id }) => ({
        api: `${api}/${encodeURIComponent(id)}/stream?after=${encodeURIComponent(stored.at(-1).id)}`,
        headers,
      }),
    });
    const gone = () => closing.signal.aborted;
    const chat = new Chat({ id, transport, messages: structuredClone(stored) });
    const running = number === 0 ? chat.sendMessage({ text: `question of ${id}` }) : chat.resumeStream();
    const finished = running.then(() => {
      if (!gone() && chat.status === "ready") stored = structuredClone(chat.messages);
    });
    while (number === 0 && chat.messages.length === 0) await pause(0);
    if (number === 0) stored = structuredClone(chat.messages.slice(0, 1));
    if (milliseconds !== null) {
      if (number === 0) await Promise.race([finished, arrival(id)]); // a question that fails never arrives
      if (stop) await begun;
      await Promise.race([finished, pause(milliseconds)]);
      if (stop) {
        await fetch(`${stop}/api/chat/${id}/stream`, { method: "DELETE", headers });
        stopped = Date.now();
      } else closing.abort();
    }
    await finished;
    shown = { status: chat.status, error: chat.error?.message, messages: chat.messages, stopped };
  }
  return { chat: id, ...shown };
}

process.on("unhandledRejection", (error) => {
  console.error(error);
  process.exit(1);
});
const running = [];
for await (const line of createInterface({ input: process.stdin })) {
  const said = JSON.parse(line);
  if (said.arrived) {
    arrived.get(said.arrived)?.();
    arrived.set(said.arrived, true);
  } else running.push(told(said).then((shown) => process.stdout.write(`${JSON.stringify(shown)}\n`)));
}
await Promise.all(running);
