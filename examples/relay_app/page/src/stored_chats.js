// Loads chats from the app, which stores them, and says what useChat posts: the newest message, since the app has the
// others. A reader's verdicts stay in the browser.
import { DefaultChatTransport } from "ai";

const API = "/api/chat";

export const transport = new DefaultChatTransport({
  api: API,
  fetch: fetchOrSayWhen,
  prepareSendMessagesRequest: ({ id, messages, body, trigger, messageId }) => ({
    body: { ...body, id, message: messages.at(-1), trigger, messageId },
  }),
});

// An error of a refusal says in `retryAt` when the reader may ask again, if the app said so.
async function fetchOrSayWhen(address, options) {
  const response = await fetch(address, options);
  if (response.ok) return response;
  const error = new Error(await response.text());
  const seconds = Number(response.headers.get("retry-after"));
  if (seconds > 0) error.retryAt = Date.now() + seconds * 1000;
  throw error;
}

// Returns { messages, incomplete, ratings }: incomplete is true when the last answer was stopped or cut.
export async function load(id) {
  const response = await fetch(`${API}/${encodeURIComponent(id)}`);
  if (!response.ok && response.status !== 404) throw new Error(await response.text());
  const messages = response.ok ? await response.json() : []; // 404: nothing was asked in this chat yet
  return { messages, incomplete: isIncomplete(messages.at(-1)), ratings: ratingsOf(id) };
}

function isIncomplete(last) {
  return last?.role === "user" || Boolean(last?.parts.some(({ state }) => state === "streaming"));
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
