// What clients of six APIs do in a day's work, as their own libraries do it: only address and key are given. Prints what each call has brought.
import Anthropic from "@anthropic-ai/sdk";
import { Client as Elastic } from "@elastic/elasticsearch";
import { Octokit } from "@octokit/rest";
import { LogLevel, WebClient } from "@slack/web-api";
import OpenAI from "openai";
import Stripe from "stripe";

const { BASE, KEY, REFUSED, RETRIES } = process.env;
const retries = Number(RETRIES ?? (REFUSED ? 0 : 2));

const seen = {};
async function call(client, name, run) {
  let got;
  try {
    got = await run();
  } catch (error) {
    got = {
      threw: error.constructor.name,
      status: error.status ?? error.statusCode ?? error.raw?.statusCode,
      code: error.code ?? error.data?.error,
      message: REFUSED ? error.message + (client === "slack" ? JSON.stringify(error.body ?? "") : "") : error.message?.split("\n")[0],
    };
  }
  (seen[client] ??= []).push({ name, got });
}
async function all(pages) {
  const list = [];
  for await (const one of pages) list.push(one.id);
  return list;
}

async function stripe(base) {
  // Its options have no path: what calls for it puts one in front.
  const httpClient = Stripe.createFetchHttpClient((url, init) => {
    const headers = new Headers(init.headers);
    headers.delete("Content-Length"); // fetch sets it, too, and refuses two where another library has replaced its transport
    return fetch(base + new URL(url).pathname + new URL(url).search, { ...init, headers });
  });
  const api = new Stripe(KEY, { httpClient, maxNetworkRetries: retries, telemetry: true });
  const it = (name, run) => call("stripe", name, run);
  await it("list", () => all(api.customers.list({ limit: 2 })));
  if (REFUSED) return;
  await it("create", async () => (await api.customers.create({ email: "a+b@example.com" })).email);
  await it("get", async () => (await api.customers.retrieve("c1")).id);
  await it("update", async () => (await api.customers.update("c1", { name: "Ä" })).name);
  await it("delete", async () => (await api.customers.del("c1")).deleted);
  await it("missing", () => api.customers.retrieve("missing"));
  for (const fault of ["409", "500", "503", "cut"]) {
    await it(fault, async () => (await api.charges.create({ amount: 5, currency: "eur", description: "fault-" + fault })).tries);
  }
  await it("429", () => api.charges.create({ amount: 5, currency: "eur", description: "fault-429" }));
}

async function github(base) {
  const api = new Octokit({ auth: KEY, baseUrl: base, log: { debug() {}, info() {}, warn() {}, error() {} } });
  const it = (name, run) => call("github", name, run);
  const repo = { owner: "acme", repo: "anvil" };
  await it("pages", async () => (await api.paginate(api.rest.issues.listForRepo, { ...repo, per_page: 2 })).map((one) => one.id));
  if (REFUSED) return;
  await it("create", async () => (await api.rest.issues.create({ ...repo, title: "a" })).data.title);
  await it("where", async () => (await api.request((await api.rest.issues.create({ ...repo, title: "b" })).headers.location)).data.id);
  await it("get", async () => (await api.rest.issues.get({ ...repo, issue_number: 7 })).data.id);
  await it("update", async () => (await api.rest.issues.update({ ...repo, issue_number: 7, title: "c" })).data.title);
  await it("delete", async () => (await api.rest.issues.deleteLabel({ ...repo, name: "a/b c" })).status);
  await it("missing", () => api.rest.issues.get({ ...repo, issue_number: 404 }));
  await it("moved", async () => (await api.request("GET /moved")).data.id);
}

async function openai(base) {
  const api = new OpenAI({ apiKey: KEY, baseURL: base, maxRetries: retries });
  const it = (name, run) => call("openai", name, run);
  await it("list", () => all(api.files.list({ limit: 2 })));
  if (REFUSED) return;
  const ask = (content) => api.chat.completions.create({ model: "m", messages: [{ role: "user", content }] });
  await it("ask", async () => (await ask("hello")).choices[0].message.content);
  await it("get", async () => (await api.models.retrieve("ft:m/a:b")).id);
  await it("delete", async () => (await api.models.delete("m")).deleted);
  await it("missing", () => api.models.retrieve("missing"));
  for (const fault of ["409", "429", "500", "503"]) await it(fault, async () => (await ask("fault-" + fault)).tries);
}

async function anthropic(base) {
  const api = new Anthropic({ apiKey: KEY, baseURL: base, maxRetries: retries });
  const it = (name, run) => call("anthropic", name, run);
  await it("list", () => all(api.models.list({ limit: 2 })));
  if (REFUSED) return;
  const ask = (content) => api.messages.create({ model: "m", max_tokens: 5, messages: [{ role: "user", content }] });
  await it("ask", async () => (await ask("hello")).content[0].text);
  await it("missing", () => api.models.retrieve("missing"));
  for (const fault of ["409", "429", "500", "503"]) await it(fault, async () => (await ask("fault-" + fault)).tries);
}

async function slack(base) {
  const api = new WebClient(KEY, { slackApiUrl: base + "/", logLevel: LogLevel.ERROR, rejectRateLimitedCalls: !retries, retryConfig: { retries, minTimeout: 10 } });
  const it = (name, run) => call("slack", name, run);
  await it("pages", async () => {
    const list = [];
    for await (const page of api.paginate("conversations.list", { limit: 2 })) list.push(...page.channels.map((one) => one.id));
    return list;
  });
  if (REFUSED) return;
  await it("create", async () => (await api.chat.postMessage({ channel: "C1", text: "ä & b" })).message.text);
  await it("update", async () => (await api.chat.update({ channel: "C1", ts: "1.2", text: "c" })).message.text);
  await it("delete", async () => (await api.chat.delete({ channel: "C1", ts: "1.2" })).ok);
  await it("missing", () => api.chat.delete({ channel: "missing", ts: "1.2" }));
  for (const fault of ["429", "500", "503"]) await it(fault, async () => (await api.chat.postMessage({ channel: "C1", text: "fault-" + fault })).tries);
}

async function elastic(base) {
  const api = new Elastic({ node: base, auth: { apiKey: KEY }, maxRetries: retries, ...(REFUSED ? {} : { retryBackoff: () => 0 }) });
  const it = (name, run) => call("elastic", name, run);
  await it("search", async () => (await api.search({ index: "a*,b", query: { match_all: {} }, sort: ["a"] })).hits.hits.map((one) => one._id));
  if (REFUSED) return;
  for (const id of ["7", "https://example.com/a?b=1#c", "a%20b", "50%", "x/y//z"]) {
    await it("create " + id, async () => (await api.index({ index: "docs", id, document: { a: 1 } }))._id);
    await it("get " + id, async () => (await api.get({ index: "docs", id }))._id);
    await it("delete " + id, async () => (await api.delete({ index: "docs", id })).result);
  }
  await it("update", async () => (await api.update({ index: "docs", id: "7", doc: { a: 2 } })).result);
  await it("exists", async () => await api.exists({ index: "docs", id: "missing" }));
  await it("missing", () => api.get({ index: "docs", id: "missing" }));
  for (const fault of ["503", "cut"]) await it(fault, async () => (await api.index({ index: "docs", id: "fault-" + fault, document: { a: 1 } })).tries);
}

await Promise.all(Object.entries({ stripe, github, openai, anthropic, slack, elastic }).map(([name, run]) => run(REFUSED || `${BASE}/${name}`)));
console.log(JSON.stringify(seen));
