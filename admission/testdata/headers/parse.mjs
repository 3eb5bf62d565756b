// Reads a JSON array of headers (objects with names in lower case) from the
// environment, and prints what two independent parsers make of them.
import { parseList } from "structured-headers";
import { parseRateLimit } from "ratelimit-header-parser";

const items = (text) => (text === undefined ? [] : parseList(text))
  .map(([value, params]) => ({ name: value, ...Object.fromEntries(params) }));

console.log(JSON.stringify(JSON.parse(process.env.HEADERS).map((h) => {
  const { ratelimit, ...older } = h; // the second parser knows only an earlier draft of it
  const parsed = parseRateLimit(older);
  return {
    policies: items(h["ratelimit-policy"]),
    states: items(ratelimit),
    older: parsed && { limit: parsed.limit, remaining: parsed.remaining, reset: parsed.reset.getTime() / 1000 },
  };
})));
