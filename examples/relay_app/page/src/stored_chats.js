// Loads chats from the app, which stores them, and sends the newest message only, since the app has the others.
// A user's verdicts stay in the browser.
import { DefaultChatTransport } from "ai";

const API = "/api/chat";
const streamOf = (id) => `${API}/${encodeURIComponent(id)}/stream`;
const newest = new Map(); // the id of the newest message of each chat that was loaded

export const transport = new DefaultChatTransport({
  api: API,
  fetch: fetchOrSayWhen,
  prepareSendMessagesRequest: ({ id, messages, body, trigger, messageId }) => ({
    body: { ...body, id, message: messages.at(-1), trigger, messageId },
  }),
  // With `after`, the relay sends the answer to that message even if the answer ended while the page was loading.
  prepareReconnectToStreamRequest: ({ id }) => ({
    api: `${streamOf(id)}?after=${encodeURIComponent(newest.get(id) ?? "")}`,
  }),
});

// Stops the running answer at the service, whichever tab reads it. Closing the page's request does not stop it.
export async function stopAtService(id) {
  await fetch(streamOf(id), { method: "DELETE", keepalive: true }).catch(() => {});
}

// An error of a refusal says in `retryAt` when the reader may ask again, if the app said so.
async function fetchOrSayWhen(address, options) {
  const response = await fetch(address, options);
  if (response.status === 204) return new Response("data: [DONE]\n\n"); // no answer runs; ai 5.0.0 needs a stream
  if (response.ok) return response;
  const error = new Error(await response.text());
  const seconds = Number(response.headers.get("retry-after"));
  if (seconds > 0) error.retryAt = Date.now() + seconds * 1000;
  throw error;
}

// Returns { messages, ratings }. If an answer is running, the last message is its question.
export async function load(id) {
  const response = await fetch(`${API}/${encodeURIComponent(id)}`);
  if (!response.ok && response.status !== 404) throw new Error(await response.text());
  const messages = response.ok ? await response.json() : []; // 404: nothing was asked in this chat yet
  newest.set(id, messages.at(-1)?.id);
  return { messages, ratings: ratingsOf(id) };
}

function ratingsOf(id) {
  try {
    return JSON.parse(localStorage.getItem(`ratings:${id}`)) ?? {};
  } catch {
    return {};
  }
}

export function saveRatings(id, ratings) {
  try {
    localStorage.setItem(`ratings:${id}`, JSON.stringify(ratings));
  } catch {
    // Where storage is full or off, verdicts are shown until the reload.
  }
}
