// Keeps chats over a reload, in the browser's storage. Everything else gets a chat by `load` and gives it to `save`,
// so that a server can keep them instead: let `load` fetch the messages, `save` do nothing, and give useChat
// `resume: true` in chat.jsx, which goes on with an answer that is still being written.

const PREFIX = "chat:";
const KEPT = 20; // chats; the oldest are forgotten

// Returns { messages, incomplete, ratings }: incomplete is true when the last answer was stopped or cut.
export async function load(id) {
  const chat = read(PREFIX + id);
  const messages = Array.isArray(chat?.messages) ? chat.messages : [];
  return { messages, incomplete: Boolean(chat?.incomplete), ratings: chat?.ratings ?? {} };
}

export function save(id, chat) {
  if (chat.messages.length === 0) return;
  const text = JSON.stringify({ ...chat, at: Date.now() });
  for (const old of others(id).slice(KEPT - 1)) drop(old);
  // A full storage refuses: the oldest chats make room. Where storage is off, the chat lives until the reload.
  for (;;) {
    try {
      localStorage.setItem(PREFIX + id, text);
      return;
    } catch {
      const oldest = others(id).at(-1);
      if (oldest === undefined) return;
      drop(oldest);
    }
  }
}

// Returns the keys of the other chats, newest first.
function others(id) {
  try {
    const keys = Object.keys(localStorage).filter((key) => key.startsWith(PREFIX) && key !== PREFIX + id);
    const ages = new Map(keys.map((key) => [key, read(key)?.at ?? 0]));
    return keys.sort((one, other) => ages.get(other) - ages.get(one));
  } catch {
    return [];
  }
}

function read(key) {
  try {
    return JSON.parse(localStorage.getItem(key));
  } catch {
    return null;
  }
}

function drop(key) {
  localStorage.removeItem(key);
}
