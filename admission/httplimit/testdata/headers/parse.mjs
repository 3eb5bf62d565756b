// Reads a JSON array of headers (objects with names in lower case) from the
// environment, and prints what two independent parsers make of them. Their clock
// stands at NOW, in Unix seconds.
import { parseList } from "structured-headers";
import { parseRateLimit } from "ratelimit-header-parser";

const now = Number(process.env.NOW) * 1000;
globalThis.Date = class extends Date {
  constructor(...parts) { super(...(parts.length ? parts : [now])); }
};

const items = (text) => (text === undefined ? [] : parseList(text))
  .map(([value, params]) => ({ name: value, ...Object.fromEntries(params) }));

console.log(JSON.stringify(JSON.parse(process.env.HEADERS).map((h) => {
  const parsed = parseRateLimit(h); // of RateLimit it knows draft 7, and if that is there nothing else
  return {
    policies: items(h["ratelimit-policy"]),
    states: items(h.ratelimit),
    older: parsed && { limit: parsed.limit, remaining: parsed.remaining, reset: parsed.reset.getTime() / 1000 },
  };
})));
