// Relayed bodies in (a JSON list of [name, body] on stdin); what the installed release of ai makes of each out.
// It uses the page's own transport and fold, without a browser, so that hundreds of answers take a second.
import { DefaultChatTransport, readUIMessageStream } from "ai";

const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);
const cases = JSON.parse(Buffer.concat(chunks).toString("utf8"));
const made = {};
for (const [name, body] of cases) made[name] = await fold(body);
process.stdout.write(JSON.stringify(made));

async function fold(body) {
  const answer = async () => new Response(body, { headers: { "content-type": "text/event-stream" } });
  let message = null;
  const errors = [];
  try {
    const transport = new DefaultChatTransport({ api: "http://relay.example/api/chat", fetch: answer });
    const stream = await transport.sendMessages({ chatId: "c", messages: [], trigger: "submit-message" });
    const onError = (error) => errors.push(String(error).slice(0, 200));
    for await (message of readUIMessageStream({ stream, onError }));
  } catch (error) {
    errors.push(String(error).slice(0, 200));
  }
  return { message, errors };
}
