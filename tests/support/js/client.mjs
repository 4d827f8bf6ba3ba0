// Settings and questions in the environment in; what the AI SDK's own client makes of the answers out, as JSON.
import { DefaultChatTransport, readUIMessageStream } from 'ai';

const { BASE_URL, DOMAIN, ASSISTANT_KEY, QUESTIONS } = process.env;

let thread = {};

const transport = new DefaultChatTransport({
  api: `${BASE_URL}/discovery/v2/assistant/${DOMAIN}/message`,
  headers: { Authorization: `Bearer ${ASSISTANT_KEY}` },
  body: () => ({ fp: 'anonymous', retrievalPageSize: 5, ...thread }),
  fetch: async (url, options) => {
    const response = await fetch(url, options);
    thread = {
      threadId: response.headers.get('x-thread-id') ?? thread.threadId,
      threadKey: response.headers.get('x-thread-key') ?? thread.threadKey,
    };
    return response;
  },
});

const history = [];
for (const [number, text] of JSON.parse(QUESTIONS).entries()) {
  history.push({ id: `question-${number}`, role: 'user', parts: [{ type: 'text', text }] });
  const stream = await transport.sendMessages({
    chatId: 'chat',
    messages: history,
    trigger: 'submit-message',
    abortSignal: undefined,
  });
  let message;
  const onError = (error) => {
    throw error;
  };
  for await (const snapshot of readUIMessageStream({ stream, onError, terminateOnError: true })) {
    message = snapshot;
  }
  history.push(message);
}
console.log(JSON.stringify({ messages: history, threadId: thread.threadId }));
