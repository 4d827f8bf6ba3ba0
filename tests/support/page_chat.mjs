// A chat of the installed release of ai, without React and without a browser.
import { AbstractChat } from "ai";

class State {
  status = "ready";
  error = undefined;
  constructor(messages) {
    this.messages = messages;
  }
  pushMessage = (message) => void (this.messages = this.messages.concat(message));
  popMessage = () => void (this.messages = this.messages.slice(0, -1));
  replaceMessage = (index, message) =>
    void (this.messages = [...this.messages.slice(0, index), structuredClone(message), ...this.messages.slice(index + 1)]);
  snapshot = (thing) => structuredClone(thing);
}

export class Chat extends AbstractChat {
  constructor({ messages = [], ...options }) {
    super({ ...options, state: new State(messages) });
  }
}
