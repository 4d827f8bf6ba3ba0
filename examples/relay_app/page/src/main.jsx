// Starts the page: shows the chat that the address names (?chat=…), or a new one.
import "./without_eval.js";

import { generateId } from "ai";
import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { Chat } from "./chat.jsx";
import { load } from "./stored_chats.js";
import "./page.css";

function chatInAddress() {
  const id = new URLSearchParams(location.search).get("chat") ?? "";
  return /^[\w-]{1,64}$/.test(id) ? id : generateId();
}

function App() {
  const [id, setId] = useState(chatInAddress);
  const [saved, setSaved] = useState(null);
  const [failure, setFailure] = useState(null);

  useEffect(() => {
    const back = () => setId(chatInAddress());
    addEventListener("popstate", back);
    return () => removeEventListener("popstate", back);
  }, []);

  useEffect(() => {
    let wanted = true;
    const show = (chat) => wanted && setSaved({ ...chat, id });
    const isNew = new URLSearchParams(location.search).get("chat") !== id;
    if (isNew) show({ messages: [], ratings: {} });
    else load(id).then(show, (error) => wanted && setFailure(error.message));
    return () => {
      wanted = false;
    };
  }, [id]);

  function newChat() {
    history.pushState(null, "", location.pathname);
    setId(generateId());
  }

  if (failure !== null) {
    return (
      <main className="failure">
        <h1>Ask the docs</h1>
        <p role="alert">{failure}</p>
      </main>
    );
  }
  // A chat is mounted with its messages, once: useChat takes them only then.
  return saved?.id === id ? <Chat key={id} id={id} saved={saved} newChat={newChat} /> : null;
}

createRoot(document.getElementById("root")).render(<App />);
