// A button that copies a text to the clipboard, and tells screen readers that it did.
import { createContext, useContext, useEffect, useState } from "react";

export const Announce = createContext(() => {});

export function CopyButton({ text, label }) {
  const announce = useContext(Announce);
  const [copied, setCopied] = useState(false);

  useEffect(() => {
    if (!copied) return undefined;
    const timer = setTimeout(() => setCopied(false), 2000);
    return () => clearTimeout(timer);
  }, [copied]);

  async function copy() {
    try {
      await navigator.clipboard.writeText(text()); // browsers offer it on https and on localhost only
      setCopied(true);
      announce("Copied.");
    } catch {
      announce("The browser does not allow copying.");
    }
  }

  return (
    <button type="button" className="small" aria-label={copied ? "Copied" : label} onClick={copy}>
      {copied ? "Copied" : "Copy"}
    </button>
  );
}
