// Twenty calls at once with the providers' own clients, which stream their answers through the routes of tundish.toml. Of Tundish they know a base URL,
// and a key where it has [[keys]]. The keys of the providers are in Tundish.
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const { TUNDISH_OPENAI = "http://127.0.0.1:8080/v1/proxy/openai/v1", TUNDISH_ANTHROPIC = "http://127.0.0.1:8080/v1/proxy/claude" } = process.env;
const { TUNDISH_KEY = "none", OPENAI_MODEL = "gpt-5-mini", ANTHROPIC_MODEL = "claude-haiku-4-5" } = process.env;
const openai = new OpenAI({ baseURL: TUNDISH_OPENAI, apiKey: TUNDISH_KEY, maxRetries: 0 }); // Tundish waits instead
const anthropic = new Anthropic({ baseURL: TUNDISH_ANTHROPIC, apiKey: TUNDISH_KEY, maxRetries: 0 });
const messages = [{ role: "user", content: "Write a haiku about queues." }];

const ask = {
  async gpt() {
    let text = "";
    for await (const chunk of await openai.chat.completions.create({ model: OPENAI_MODEL, messages, max_completion_tokens: 500, stream: true })) {
      text += chunk.choices[0].delta.content ?? "";
    }
    return text;
  },
  async claude() {
    let text = "";
    for await (const event of await anthropic.messages.create({ model: ANTHROPIC_MODEL, messages, max_tokens: 500, stream: true })) {
      if (event.type === "content_block_delta") text += event.delta.text;
    }
    return text;
  },
};

const call = async (_, n) => {
  const began = Date.now();
  const name = n % 2 ? "claude" : "gpt";
  const answer = await ask[name]();
  const seconds = ((Date.now() - began) / 1000).toFixed(1);
  console.log(`${name.padEnd(6)} ${String(n).padStart(2)} answered after ${seconds}s: ${JSON.stringify(answer.slice(0, 60))}`);
};
await Promise.all(Array.from({ length: 20 }, call));
