// The page: what the reader types goes to the relay, what the relay streams is shown as it comes.
// It holds no key and no thread: the relay seals the thread into the message's metadata, and
// useChat sends that back with the history by itself.
import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport } from "ai";
import { useEffect, useRef, useState } from "react";
import { Markdown } from "./markdown.jsx";
import { safeHref, sourcesOf, splitSuggestions, textOf } from "./message.js";

const transport = new DefaultChatTransport({ api: "/api/chat" });
const STARTERS = ["How do I get started?", "How do I log in by SSO?", "What are the limits?"];

export function Assistant() {
  const { messages, sendMessage, setMessages, regenerate, stop, status, error } = useChat({ transport });
  const [draft, setDraft] = useState("");
  const end = useRef(null);
  const busy = status === "submitted" || status === "streaming";

  useEffect(() => {
    end.current?.scrollIntoView({ block: "end" });
  }, [messages, status]);

  function ask(text) {
    if (busy || !text.trim()) return;
    sendMessage({ text: text.trim() });
    setDraft("");
  }

  return (
    <main className="page" data-status={status}>
      <header>
        <span className="logo" aria-hidden="true">✦</span>
        <h1>Ask the docs</h1>
        <button className="quiet" disabled={busy || messages.length === 0} onClick={() => setMessages([])}>
          New chat
        </button>
      </header>

      <section className="messages" aria-live="polite">
        {messages.length === 0 && <Welcome ask={ask} />}
        {messages.map((message, index) => (
          <Message key={message.id} message={message} live={busy && index === messages.length - 1} />
        ))}
        {status === "submitted" && <p className="thinking">Searching the documentation…</p>}
        {error && (
          <div className="error" role="alert">
            <span>{error.message || "Something went wrong."}</span>
            <button className="quiet" onClick={() => regenerate()}>Try again</button>
          </div>
        )}
        <div ref={end} />
      </section>

      <form
        onSubmit={(event) => {
          event.preventDefault();
          ask(draft);
        }}
      >
        <input
          autoFocus
          aria-label="Your question"
          placeholder="Ask a question…"
          value={draft}
          onChange={(event) => setDraft(event.target.value)}
        />
        {busy ? (
          <button type="button" className="stop" onClick={() => stop()}>Stop</button>
        ) : (
          <button type="submit" disabled={!draft.trim()}>Send</button>
        )}
      </form>
    </main>
  );
}

function Welcome({ ask }) {
  return (
    <div className="welcome">
      <h2>What would you like to know?</h2>
      <div className="chips">
        {STARTERS.map((text) => (
          <button key={text} className="chip" onClick={() => ask(text)}>{text}</button>
        ))}
      </div>
    </div>
  );
}

function Message({ message, live }) {
  if (message.role === "user") return <p className="user" data-role="user">{textOf(message)}</p>;
  const { text, suggestions } = splitSuggestions(textOf(message));
  const sources = sourcesOf(message);
  return (
    <article className={live ? "assistant live" : "assistant"} data-role="assistant">
      <div className="text"><Markdown text={text} /></div>
      {sources.length > 0 && <Links label="Sources" kind="sources" links={sources} />}
      {!live && suggestions.length > 0 && <Links label="Read on" kind="suggestions" links={suggestions} />}
    </article>
  );
}

function Links({ label, kind, links }) {
  return (
    <nav className={kind} aria-label={label}>
      <h3>{label}</h3>
      <div className="chips">
        {links.map(({ href, title }) => (
          <a key={href} className="chip" href={safeHref(href)} target="_blank" rel="noreferrer">{title}</a>
        ))}
      </div>
    </nav>
  );
}
