import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";

test("the examples of the README are those that are compiled", () => {
  const folder = "test/examples/";
  const compiled = readdirSync(folder).map((name) => readFileSync(folder + name, "utf8"));
  const shown = [...readFileSync("README.md", "utf8").matchAll(/^```ts\n(.*?)^```$/gms)].map((block) => block[1]);
  assert.deepEqual(shown.sort(), compiled.sort());
});
