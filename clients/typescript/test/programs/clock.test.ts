import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";

import { SignatureError, verifyWebhook } from "@tundish/client";
import { app, receive, setCustomer, watched } from "./setting.js";

// The test in Go runs this file with a clock that is an hour ahead.

const limit = { timeout: 60_000 };

test("with a wrong clock jobs go in, and a 429 is obeyed", limit, async () => {
  const { fetch, exchanges } = watched();
  await Promise.all([0, 1].map((n) => app({ fetch, attempts: 10 }).enqueue("limited", { payload: { n } })));
  const ahead = Date.now() - Date.parse(exchanges[0]!.headers.get("Date")!);
  assert.ok(ahead > 3_500_000, `the clock is ${ahead} ms ahead: this proves nothing`);
  assert.ok(exchanges.some((exchange) => exchange.status === 429));
});

test("with a wrong clock a delivery is refused, and the message names the clock", limit, async (t) => {
  const secret = `whsec_${randomBytes(32).toString("base64")}`;
  const receiver = await receive();
  t.after(receiver.close);
  await setCustomer("globex", { url: receiver.url, add_secrets: [secret] });
  await app().enqueue("customers", { flow: "globex", payload: 1 });
  const { headers, body } = await receiver.next();
  await assert.rejects(verifyWebhook(headers, body, secret), (error) => error instanceof SignatureError && error.code === "too-old" && /the signature is right, but its timestamp is 3[56]\d\d s behind .* a clock is wrong/.test(error.message));
  assert.equal((await verifyWebhook(headers, body, secret, { tolerance: Infinity })).secret, 0);
});
