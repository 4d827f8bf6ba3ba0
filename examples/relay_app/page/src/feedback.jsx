// Two thumbs below an answer; the app takes the verdict at a route of its own.
import { useContext, useState } from "react";
import { Announce } from "./copy_button.jsx";

const THUMB =
  "M7 22H4a2 2 0 0 1-2-2v-7a2 2 0 0 1 2-2h3m0 11V11m0 11h10.3a2 2 0 0 0 2-1.7l1.4-9a2 2 0 0 0-2-2.3H14V5a3 3 0 0 0-3-3l-4 9";

export function Feedback({ chatId, messageId, rating, onRated }) {
  const announce = useContext(Announce);
  const [failed, setFailed] = useState(false);

  async function rate(value) {
    setFailed(false);
    try {
      const response = await fetch("/api/chat/feedback", {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ chatId, messageId, value }),
      });
      if (!response.ok) throw new Error(String(response.status));
      onRated(messageId, value);
      announce("Thank you for your feedback.");
    } catch {
      setFailed(true);
    }
  }

  return (
    <>
      <Thumb label="Good answer" pressed={rating === 1} onClick={() => rate(1)} />
      <Thumb label="Bad answer" down pressed={rating === -1} onClick={() => rate(-1)} />
      {failed && <span role="alert" className="failed">That could not be sent.</span>}
    </>
  );
}

function Thumb({ label, down, pressed, onClick }) {
  return (
    <button type="button" className="small thumb" aria-label={label} aria-pressed={pressed} onClick={onClick}>
      <svg viewBox="0 0 24 24" width="16" height="16" aria-hidden="true" transform={down ? "rotate(180)" : undefined}>
        <path d={THUMB} fill={pressed ? "currentColor" : "none"} stroke="currentColor" strokeWidth="2" strokeLinejoin="round" />
      </svg>
    </button>
  );
}
