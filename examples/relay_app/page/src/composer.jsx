// Where the reader types: Enter sends, Shift+Enter begins a new line, and the box grows with its text.
import { useEffect, useLayoutEffect, useRef, useState } from "react";
import { textOf } from "./message.js";

export function Composer({ busy, ask, stop, editing }) {
  const [draft, setDraft] = useState("");
  const kept = useRef(null); // the draft that an edit has put aside
  const box = useRef(null);

  useEffect(() => {
    if (editing) {
      kept.current ??= draft;
      setDraft(textOf(editing));
      box.current.focus();
    } else if (kept.current !== null) {
      setDraft(kept.current);
      kept.current = null;
    }
  }, [editing]);

  useLayoutEffect(() => {
    box.current.style.height = "auto";
    box.current.style.height = `${box.current.scrollHeight + 2}px`; // and its border
  }, [draft]);

  function send() {
    if (busy || !draft.trim()) return; // what is typed during an answer stays
    ask(draft.trim());
    setDraft("");
  }

  function onKeyDown(event) {
    // While a word of Japanese or Chinese is being composed, Enter ends the word.
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    send();
  }

  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        send();
        box.current.focus();
      }}
    >
      <textarea
        ref={box}
        autoFocus
        rows={1}
        aria-label="Your question"
        placeholder="Ask a question…"
        value={draft}
        onChange={(event) => setDraft(event.target.value)}
        onKeyDown={onKeyDown}
      />
      {/* The keys keep the two apart: a button that changed its type while it is pressed would send the form. */}
      {busy ? (
        <button
          key="stop"
          type="button"
          className="stop"
          onClick={() => {
            stop();
            box.current.focus(); // the button goes away, and with it the focus
          }}
        >
          Stop
        </button>
      ) : (
        <button key="send" type="submit" aria-disabled={!draft.trim()}>Send</button>
      )}
    </form>
  );
}
