// One chat: the relay streams each answer into useChat, and this shows it.
// The page holds no key, no thread and no history: the app has them all, and useChat posts the newest message only.
import { useChat } from "@ai-sdk/react";
import { memo, useCallback, useContext, useEffect, useRef, useState } from "react";
import { useStickToBottom } from "use-stick-to-bottom";
import { Composer } from "./composer.jsx";
import { Announce, CopyButton } from "./copy_button.jsx";
import { Feedback } from "./feedback.jsx";
import { Link, Markdown } from "./markdown.jsx";
import { imagesOf, isCut, isIncomplete, isSearching, pageOf, piecesOf, sourcesOf, splitSuggestions, textOf } from "./message.js";
import { saveRatings, stopAtService, transport } from "./stored_chats.js";

const STARTERS = ["How do I get started?", "How do I log in by SSO?", "What are the limits?"];
const SEARCHING = "Searching the documentation…";
const DRAW = 50; // milliseconds between two drawings of a growing answer

export function Chat({ id, saved, newChat }) {
  const { messages, sendMessage, regenerate, stop, status, error } = useChat({
    id,
    messages: saved.messages,
    resume: saved.messages.at(-1)?.role === "user", // its answer may still be running
    transport,
    throttle: DRAW,
    experimental_throttle: DRAW, // its name before ai 7
  });
  const last = messages.at(-1);
  const busy = status === "submitted" || status === "streaming";
  const running = useRef(false);
  running.current = busy;
  const [stopped, setStopped] = useState(false);
  const incomplete = stopped || isIncomplete(last);
  const [ratings, setRatings] = useState(saved.ratings);
  const rated = useCallback((messageId, value) => setRatings((all) => ({ ...all, [messageId]: value })), []);
  const [editing, setEditing] = useState(null); // the question that the reader is changing
  const again = useCallback((messageId) => regenerate({ messageId }), [regenerate]);
  const scroll = useStickToBottom({ initial: "instant", resize: "instant" });
  const edit = useCallback((message) => {
    scroll.stopScroll(); // the edited question stays in sight
    setEditing(message);
  }, []);

  useEffect(() => saveRatings(id, ratings), [ratings]);
  useEffect(() => () => void (running.current && stopAnswer()), []); // another chat takes its place

  const [spoken, announce] = useSpoken(status, incomplete, scroll.contentRef);

  function ask(text) {
    if (busy) return;
    history.replaceState(null, "", `?chat=${id}`);
    setStopped(false);
    sendMessage({ text, messageId: editing?.id }); // with a message's id, it takes the place of that message
    setEditing(null);
    scroll.scrollToBottom("instant");
  }

  function retry() {
    setStopped(false);
    regenerate();
    scroll.scrollToBottom("instant");
  }

  async function stopAnswer() {
    setStopped(true);
    await stopAtService(id);
    stop();
  }

  return (
    <Announce value={announce}>
      <div className="page">
        <header>
          <span className="logo" aria-hidden="true">✦</span>
          <h1>Ask the docs</h1>
          {messages.length > 0 && <button type="button" className="plain" onClick={newChat}>New chat</button>}
        </header>

        <main data-status={status}>
          <div className="messages" ref={scroll.scrollRef} tabIndex={0} role="log" aria-label="Chat" aria-live="off">
            <div className="column" ref={scroll.contentRef}>
              {messages.length === 0 && <Welcome ask={ask} />}
              {messages.map((message, index) =>
                message.role === "user" ? (
                  <Asked
                    key={index}
                    message={message}
                    edit={busy ? undefined : edit}
                    replaced={editing === message ? messages.length - index - 1 : undefined}
                  />
                ) : (
                  <Answer
                    key={index}
                    message={message}
                    live={busy && message === last}
                    cut={isCut(message) || (message === last && (incomplete || status === "error"))}
                    again={status === "ready" && !incomplete && message === last ? again : undefined}
                    chatId={id}
                    rating={ratings[message.id]}
                    onRated={rated}
                  />
                ),
              )}
              {status === "submitted" && last?.role === "user" && <Searching />}
              {status === "error" && <Notice text={reasonOf(error)} retry={retry} at={error?.retryAt} failed />}
              {status === "ready" && incomplete && <Notice text="This answer is not complete." retry={retry} />}
            </div>
          </div>
          {!scroll.isAtBottom && (
            <button type="button" className="plain newest" onClick={() => scroll.scrollToBottom("instant")}>
              ↓ Newest
            </button>
          )}
          <p role="status" className="unseen">{spoken}</p>
          <Composer busy={busy} ask={ask} stop={stopAnswer} editing={editing} />
        </main>
      </div>
    </Announce>
  );
}

// Screen readers hear each answer once, when it is whole, and not each piece of it.
function useSpoken(status, incomplete, content) {
  const [spoken, announce] = useState("");
  const before = useRef(status);
  useEffect(() => {
    const was = before.current;
    before.current = status;
    if (status === "submitted") announce(SEARCHING);
    if (status === "error") announce(""); // the notice of the error is an alert, which is read by itself
    if (status === "ready" && was !== "ready") announce(incomplete ? "Stopped." : `Answer: ${lastAnswer(content.current)}`);
  }, [status]);
  return [spoken, announce];
}

function lastAnswer(content) {
  const text = [...content.querySelectorAll(".assistant .text")].at(-1)?.cloneNode(true);
  text?.querySelectorAll("button").forEach((button) => button.remove());
  return text?.textContent ?? "";
}

function reasonOf(error) {
  // fetch throws a TypeError when there is no connection; what the relay says is made for readers.
  if (error instanceof TypeError) return "The connection was lost. Please try again.";
  return error?.message || "Something went wrong. Please try again.";
}

function Welcome({ ask }) {
  return (
    <div className="welcome">
      <h2>What would you like to know?</h2>
      <div className="chips">
        {STARTERS.map((text) => (
          <button type="button" key={text} className="chip" onClick={() => ask(text)}>{text}</button>
        ))}
      </div>
    </div>
  );
}

function Searching() {
  return <p className="searching">{SEARCHING}</p>;
}

function Notice({ text, retry, at, failed }) {
  const wait = useCountdown(at);
  return (
    <div className={failed ? "notice failed" : "notice"} role={failed ? "alert" : undefined}>
      <span>{text}</span>
      <button type="button" className="plain" onClick={retry} disabled={wait > 0}>
        {wait > 0 ? `Retry in ${timeOf(wait)}` : "Retry"}
      </button>
    </div>
  );
}

// Returns the seconds until `at`, and draws again each second.
function useCountdown(at) {
  const [now, setNow] = useState(Date.now);
  const wait = at === undefined ? 0 : Math.max(0, Math.ceil((at - now) / 1000));
  useEffect(() => {
    if (wait === 0) return undefined;
    const timer = setTimeout(() => setNow(Date.now()), 1000);
    return () => clearTimeout(timer);
  }, [wait, now]);
  return wait;
}

function timeOf(seconds) {
  return seconds < 120 ? `${seconds} s` : `${Math.ceil(seconds / 60)} min`;
}

const Asked = memo(function Asked({ message, edit, replaced }) {
  const announce = useContext(Announce);
  const article = useRef(null);
  const editing = replaced !== undefined;
  const what = replaced > 1 ? `This question and the ${replaced} messages after it` : "This question and its answer";
  const note = `${what} will be replaced.`;

  useEffect(() => {
    if (!editing) return;
    article.current.scrollIntoView({ block: "nearest" });
    announce(note);
  }, [editing]);

  return (
    <article ref={article} className={editing ? "user editing" : "user"}>
      <h2 className="unseen">You asked</h2>
      <p>{textOf(message)}</p>
      {editing ? (
        <div className="replaced">
          <span>{note}</span>
          <button type="button" className="edit" onClick={() => edit(null)}>Cancel</button>
        </div>
      ) : (
        <button type="button" className="edit" disabled={!edit} onClick={() => edit(message)}>Edit</button>
      )}
    </article>
  );
});

const Answer = memo(function Answer({ message, live, cut, again, chatId, rating, onRated }) {
  const { text, suggestions } = splitSuggestions(textOf(message), live);
  const sources = sourcesOf(message);
  const shown = new Set(sources.map(({ href }) => pageOf(href)));
  const images = imagesOf(message);
  return (
    <article className={live ? "assistant live" : "assistant"}>
      <h2 className="unseen">Answer</h2>
      <div className="text">
        {piecesOf(text).map((piece, index) => <Markdown key={index} text={piece} id={message.id} />)}
        {images.map(({ url, filename }) => <img key={url} src={url} alt={filename ?? "Image of the answer"} />)}
        {!live && !text && images.length === 0 && <p>There is no text in this answer.</p>}
      </div>
      {live && isSearching(message) && <Searching />}
      {!live && (
        <>
          <Links label="Sources" kind="sources" links={sources} />
          <Links label="Read on" kind="suggestions" links={suggestions.filter(({ href }) => !shown.has(pageOf(href)))} />
          <div className="actions">
            {text && <CopyButton label="Copy answer" text={() => text} />}
            {again && <button type="button" className="small" onClick={() => again(message.id)}>Answer again</button>}
            {!cut && <Feedback chatId={chatId} messageId={message.id} rating={rating} onRated={onRated} />}
          </div>
        </>
      )}
    </article>
  );
});

function Links({ label, kind, links }) {
  if (links.length === 0) return null;
  return (
    <div className={kind}>
      <h3 className="label">{label}</h3>
      <ul className="chips">
        {links.map(({ href, title }) => (
          <li key={href}><Link href={href} className="chip">{title}</Link></li>
        ))}
      </ul>
    </div>
  );
}
