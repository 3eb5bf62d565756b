// Many clients of OpenAI's and Anthropic's APIs at once, as their own libraries make them: only base URL and key are ours. Some abort their
// streams. Prints what each was answered.
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const { CLIENTS, ABORTED, KEY, OPENAI, ANTHROPIC, OUTPUT } = process.env;
const openai = new OpenAI({ baseURL: OPENAI, apiKey: KEY, maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: ANTHROPIC, apiKey: KEY, maxRetries: 0 });
const model = "m";
const max_tokens = Number(OUTPUT);
const messages = [{ role: "user", content: "word".repeat(100) }];

// each is what a client does with one call; it returns the text and the tokens that it was told.
const each = {
  chat: async () => {
    const answer = await openai.chat.completions.create({ model, messages, max_tokens });
    return { text: answer.choices[0].message.content, output: answer.usage.completion_tokens };
  },
  "chat stream": async (stop) => {
    const stream = await openai.chat.completions.create({ model, messages, max_tokens, stream: true });
    let text = "", parts = 0;
    for await (const chunk of stream) {
      text += chunk.choices[0].delta.content ?? ""; // a chunk without choices would be one that nobody asked for
      if (stop && ++parts === 4) stream.controller.abort();
    }
    return { text };
  },
  "chat stream with usage": async () => {
    const stream = await openai.chat.completions.create({ model, messages, max_tokens, stream: true, stream_options: { include_usage: true } });
    let text = "", output;
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? "";
      output = chunk.usage?.completion_tokens ?? output;
    }
    return { text, output };
  },
  response: async () => {
    const answer = await openai.responses.create({ model, input: "word".repeat(100), max_output_tokens: max_tokens });
    return { text: answer.output_text, output: answer.usage.output_tokens };
  },
  "response stream": async () => {
    const stream = await openai.responses.create({ model, input: "word".repeat(100), max_output_tokens: max_tokens, stream: true });
    let text = "", output;
    for await (const event of stream) {
      if (event.type === "response.output_text.delta") text += event.delta;
      if (event.type === "response.completed") output = event.response.usage.output_tokens;
    }
    return { text, output };
  },
  embedding: async () => {
    const answer = await openai.embeddings.create({ model, input: "word".repeat(100), encoding_format: "float" });
    return { text: "", output: answer.data.length - 1 };
  },
  message: async () => {
    const answer = await anthropic.messages.create({ model, messages, max_tokens });
    return { text: answer.content[0].text, output: answer.usage.output_tokens };
  },
  "message stream": async (stop) => {
    const stream = await anthropic.messages.create({ model, messages, max_tokens, stream: true });
    let text = "", output, parts = 0;
    for await (const event of stream) {
      if (event.type === "content_block_delta") text += event.delta.text;
      if (event.type === "message_delta") output = event.usage.output_tokens;
      if (stop && ++parts === 5) stream.controller.abort();
    }
    return { text, output };
  },
};

const visit = async (kind, stop) => {
  try {
    return { kind, aborted: stop, ...(await each[kind](stop)) };
  } catch (error) {
    return { kind, aborted: stop || error.name === "APIUserAbortError", fault: String(error), status: error.status };
  }
};
const kinds = Object.keys(each);
const calls = Array.from({ length: Number(CLIENTS) }, (_, n) => visit(kinds[n % kinds.length], false));
const aborts = Array.from({ length: Number(ABORTED) }, (_, n) => visit(n % 2 ? "chat stream" : "message stream", true));
console.log(JSON.stringify(await Promise.all([...calls, ...aborts])));
