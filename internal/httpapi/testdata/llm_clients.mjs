// What official clients of OpenAI, of Azure and of Anthropic do through routes: calls whose model is in the path, in the background, with searches, with
// a conversation, with a list of prompts, and to a provider that refuses stream_options. Prints what each was answered.
import Anthropic from "@anthropic-ai/sdk";
import OpenAI, { AzureOpenAI } from "openai";

const { PROXY } = process.env;
const base = { apiKey: "none", maxRetries: 0 };
const openai = new OpenAI({ ...base, baseURL: `${PROXY}/model/v1` });
const strict = new OpenAI({ ...base, baseURL: `${PROXY}/strict/v1` });
const slow = new OpenAI({ ...base, baseURL: `${PROXY}/slow/v1` });
const azure = new AzureOpenAI({ ...base, baseURL: `${PROXY}/azure/openai`, apiVersion: "2024-10-21", deployment: "prod" });
const anthropic = new Anthropic({ ...base, baseURL: `${PROXY}/claude` });
const messages = [{ role: "user", content: "word".repeat(100) }];
const model = "m";

const textOf = async (stream) => {
  let text = "";
  for await (const chunk of stream) text += chunk.choices[0].delta.content ?? "";
  return text;
};

const answers = {};
answers.azure = (await azure.chat.completions.create({ model: "", messages })).usage.total_tokens;
answers.azureStream = (await textOf(await azure.chat.completions.create({ model: "", messages, stream: true }))).length;

let response = await openai.responses.create({ model, input: messages[0].content, background: true });
answers.first = response.status;
for (answers.polls = 0; response.status === "queued" || response.status === "in_progress"; answers.polls++) {
  response = await openai.responses.retrieve(response.id);
}
await openai.responses.retrieve(response.id); // it was charged already
answers.background = response.usage.total_tokens;

for (let n = 0; n < 12; n++) {
  await openai.responses.create({ model, input: messages[0].content, tools: [{ type: "web_search" }], max_output_tokens: 50 });
}
answers.search = (await openai.responses.create({ model, conversation: "conv_1" })).usage.total_tokens;
answers.prompts = (await openai.completions.create({ model, prompt: Array(20).fill("word"), max_tokens: 40 })).usage.total_tokens;
answers.claude = (await anthropic.messages.create({ model, messages, max_tokens: 50, tools: [{ type: "web_search_20250305", name: "web_search" }] })).usage.input_tokens;
answers.strict = [];
for (let n = 0; n < 3; n++) answers.strict.push((await textOf(await strict.chat.completions.create({ model, messages, stream: true, max_tokens: 50 }))).length > 0);
try {
  await slow.chat.completions.create({ model, messages }, { timeout: 30_000 });
} catch (error) {
  answers.slow = error.status;
}
const busy = new OpenAI({ ...base, baseURL: `${PROXY}/busy/v1` });
const busyAzure = new AzureOpenAI({ ...base, baseURL: `${PROXY}/busy/openai`, apiVersion: "2024-10-21", deployment: "prod" });
answers.fallback = [];
for (const call of [
  busy.chat.completions.create({ model: "gpt-5", messages }),
  busyAzure.chat.completions.create({ model: "", messages }),
  busy.chat.completions.create({ model, messages }),
]) {
  const { data, response: { headers } } = await call.withResponse();
  answers.fallback.push(`${headers.get("tundish-bucket")} ${headers.get("tundish-model") ?? "<nil>"} ${data.model}`);
}
console.log(JSON.stringify(answers));
