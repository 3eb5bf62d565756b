import assert from "node:assert/strict";
import { test } from "node:test";

import { SignatureError, verifyWebhook, type ReceivedHeaders, type VerifyOptions } from "../src/index.js";

// The example of Standard Webhooks, which docs/signatures.md shows too.
const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const other = "whsec_" + Buffer.alloc(24, 7).toString("base64");
const signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
const body = '{"test": 2432232314}';
const headers = { "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp": "1614265330", "webhook-signature": signature };
const at = (seconds: number) => ({ now: new Date((1614265330 + seconds) * 1000) });

test("a right signature is accepted, of any secret and in any form of headers and body", async () => {
  const want = { id: headers["webhook-id"], timestamp: new Date(1614265330_000), secret: 0 };
  for (const form of [headers, new Headers(headers), { "Webhook-Id": headers["webhook-id"], "Webhook-Timestamp": ["1614265330"], "WEBHOOK-SIGNATURE": signature }] as ReceivedHeaders[]) {
    assert.deepEqual(await verifyWebhook(form, body, secret, at(0)), want);
  }
  assert.deepEqual(await verifyWebhook(headers, Buffer.from(body), [secret, other], at(0)), want);
  assert.deepEqual(await verifyWebhook(headers, body, [other, secret], at(0)), { ...want, secret: 1 });
  const several = { ...headers, "webhook-signature": `v1a,AAAA v1,AAAA  ${signature}` };
  assert.deepEqual(await verifyWebhook(several, body, secret, at(0)), want);
});

test("a wrong clock is told apart from a wrong signature", async () => {
  for (const [seconds, options, want] of [
    [300, {}, undefined],
    [-300, {}, undefined],
    [301, {}, /^the signature is right, but its timestamp is 301 s behind the clock of this machine, and 300 s are accepted: .* a clock is wrong$/],
    [-301, {}, /its timestamp is 301 s ahead of the clock of this machine/],
    [1, { tolerance: 0 }, /is 1 s behind/],
    [1e9, { tolerance: Infinity }, undefined],
  ] as [number, VerifyOptions, RegExp | undefined][]) {
    const checked = verifyWebhook(headers, body, secret, { ...at(seconds), ...options });
    if (!want) await checked;
    else await assert.rejects(checked, (error) => error instanceof SignatureError && error.code === (seconds > 0 ? "too-old" : "too-new") && want.test(error.message));
  }
  await assert.rejects(verifyWebhook(headers, body, other, at(1e6)), { code: "no-match" });
});

test("what was changed is refused, with the reason", async () => {
  for (const [change, sent, code] of [
    [{}, body + "\n", "no-match"],
    [{}, "", "no-match"],
    [{ "webhook-id": "msg_2" }, body, "no-match"],
    [{ "webhook-timestamp": "1614265331" }, body, "no-match"],
    [{ "webhook-signature": signature.slice(0, 20) }, body, "no-match"],
    [{ "webhook-signature": "v1," }, body, "no-match"],
    [{ "webhook-signature": signature.slice(3) }, body, "no-signature"],
    [{ "webhook-signature": "v1a,AAAA" }, body, "no-signature"],
    [{ "webhook-signature": undefined }, body, "header-missing"],
    [{ "webhook-id": "" }, body, "header-missing"],
    [{ "webhook-timestamp": "1614265330.0" }, body, "timestamp-invalid"],
    [{ "webhook-timestamp": "-1" }, body, "timestamp-invalid"],
    [{ "webhook-timestamp": "2021-02-25T15:02:10Z" }, body, "timestamp-invalid"],
  ] as [Record<string, string | undefined>, string, string][]) {
    await assert.rejects(verifyWebhook({ ...headers, ...change }, sent, secret, at(0)), (error) => error instanceof SignatureError && error.code === code, JSON.stringify(change) + sent);
  }
});

test("a secret that could not sign, a parsed body and a tolerance that is no number are told, and no message has the secret", async () => {
  for (const wrong of ["hunter2", "", "whsec_", "whsec_hunter2", "whsec_" + Buffer.alloc(23).toString("base64"), "whsec_" + Buffer.alloc(65).toString("base64"), "whsec_" + Buffer.alloc(25).toString("base64").replaceAll("=", ""), secret + "\n", secret.slice(6)]) {
    await assert.rejects(verifyWebhook(headers, body, [secret, wrong], at(0)), (error) => error instanceof TypeError && /^secret number 2 is none/.test(error.message) && !error.message.includes("hunter"));
  }
  await assert.rejects(verifyWebhook(headers, body, [], at(0)), /there is no secret/);
  await assert.rejects(verifyWebhook(headers, JSON.parse(body) as string, secret, at(0)), /give it as it arrived, before it is parsed/);
  for (const tolerance of [NaN, -1]) await assert.rejects(verifyWebhook(headers, body, secret, { ...at(0), tolerance }), RangeError);
  await assert.rejects(verifyWebhook(headers, body, secret, { now: new Date("x") }), RangeError);
});
