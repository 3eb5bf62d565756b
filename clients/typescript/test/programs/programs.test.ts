import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";

import { ConnectionError, ProblemError, RefusedError, SignatureError, unwrap, verifyWebhook } from "@tundish/client";
import { app, closedURL, fingerprint, lossyURL, onCall, receive, setCustomer, watched } from "./setting.js";

const limit = { timeout: 60_000 };

test("a job is admitted, with the key", limit, async () => {
  const job = await app().enqueue("webhooks", { id: "order-17", payload: { order: 17 } });
  assert.deepEqual([job.id, job.bucket, job.state, job.duplicate], ["order-17", "webhooks", "queued", undefined]);
  const again = await app().enqueue("webhooks", { id: "order-17", payload: { order: 17 } });
  assert.equal(again.duplicate, true);
  const named = await app().enqueue("webhooks", { payload: { order: 18 } }, { idempotencyKey: "order-18" });
  assert.match(named.id, /^tundish-key-/);
});

test("another job under the id, a wrong key and a wrong field are told as problems", limit, async () => {
  await assert.rejects(app().enqueue("webhooks", { id: "order-17", payload: { order: 19 } }), (error) => error instanceof ProblemError && error.code === "id-reused" && error.status === 422);
  await assert.rejects(app({ key: "tdk_wrong" }).enqueue("webhooks", { payload: 1 }), (error) => error instanceof ProblemError && error.code === "unauthorized");
  await assert.rejects(app().enqueue("nothing", { payload: 1 }), (error) => error instanceof ProblemError && error.code === "unknown-bucket" && error.detail.includes('"nothing"'));
  await assert.rejects(app().enqueue("webhooks", { payload: 1, delay: "soon" }), (error) => error instanceof ProblemError && error.problem.errors?.[0]?.field === "delay");
});

test("a job whose reply is lost is sent again as the same job", limit, async () => {
  const { fetch, exchanges } = watched();
  const job = await app({ fetch }, lossyURL).enqueue("webhooks", { payload: "the reply to this job is lost" });
  assert.equal(job.duplicate, true, "the first request has put it in");
  assert.equal(exchanges.length, 1, "one of two requests had an answer");
});

test("a batch whose reply is lost is sent again as the same jobs", limit, async () => {
  const batch = await app({}, lossyURL).enqueueBatch("webhooks", [{ payload: "the reply to this batch is lost" }, { payload: "and so for this job" }]);
  assert.deepEqual(batch.results.map((result) => [result.status, result.duplicate]), [[202, true], [202, true]]);
});

test("without a server the error has the id", limit, async () => {
  await assert.rejects(app({ attempts: 2 }, closedURL).enqueue("webhooks", { id: "a", payload: 1 }), (error) => error instanceof ConnectionError && error.id === "a" && /ECONNREFUSED/.test(error.message));
});

test("a 429 is obeyed, and handed on where the bound is lower", limit, async () => {
  // Together, so that a slow machine does not spread them over seconds.
  const calls = [0, 1, 2].map((n) => {
    const { fetch, exchanges } = watched();
    return app({ fetch, attempts: 10 }).enqueue("limited", { payload: { n } }).then((job) => ({ job, exchanges }));
  });
  let refusals = 0;
  for (const { job, exchanges } of await Promise.all(calls)) {
    assert.equal(job.duplicate, undefined);
    for (const [i, { status, headers, ended }] of exchanges.slice(0, -1).entries()) {
      const seconds = Number(headers.get("Retry-After"));
      const waited = exchanges[i + 1]!.began - ended;
      // Node's timers may be a millisecond early.
      assert.ok(status === 429 && seconds >= 1 && waited >= seconds * 1000 - 2, `status ${status}, waited ${waited} ms of ${seconds} s`);
      refusals++;
    }
  }
  assert.ok(refusals >= 2, `${refusals} refusals of 3 jobs at 1/s`);

  const once = watched();
  const impatient = app({ fetch: once.fetch, longestWait: 100 });
  let failure: unknown;
  while (failure === undefined) failure = await impatient.enqueue("limited", { payload: 1 }).then(() => undefined, (error: unknown) => error);
  assert.ok(failure instanceof RefusedError, String(failure));
  assert.deepEqual([failure.code, failure.retryAfter, failure.problem["violated-policies"], failure.outcomeUnknown], ["limit-exceeded", 1, ["one-a-second"], false]);
  assert.equal(once.exchanges.filter((exchange) => exchange.status === 429).length, 1);
});

test("a batch has a result for each job, and what a limit refused is sent again", limit, async () => {
  const batch = await app().enqueueBatch("webhooks", [{ payload: { n: 1 } }, { id: "not valid", payload: { n: 2 } }, { id: "order-17", payload: { order: 17 } }, { id: "order-17", payload: 0 }]);
  assert.deepEqual([batch.admitted, batch.refused], [2, 2]);
  assert.deepEqual(batch.results.map((result) => [result.status, result.code, result.duplicate]), [
    [202, undefined, undefined],
    [400, "invalid", undefined],
    [202, undefined, true],
    [422, "id-reused", undefined],
  ]);
  const { fetch, exchanges } = watched();
  const paced = await app({ fetch }).enqueueBatch("limited", [{ payload: 1 }, { payload: 2 }]);
  assert.deepEqual([paced.admitted, paced.refused], [2, 0]);
  assert.ok(exchanges.length >= 2);
  const none = await app().enqueueBatch("webhooks", [{ id: "not valid", payload: 1 }]);
  assert.deepEqual([none.admitted, none.refused, none.results[0]!.code], [0, 1, "invalid"]);
});

test("the result of a job is waited for", limit, async () => {
  const waited = await app().enqueueAndWait("webhooks", { payload: "answer me" }, { wait: 30 });
  assert.ok(waited.ended);
  assert.deepEqual([waited.result.state, waited.result.status, waited.result.body], ["done", 200, "answered: \"answer me\""]);
});

test("an operator's pause holds jobs, and a full bucket is told at once", limit, async () => {
  const path = { bucket: "small" };
  await assert.rejects(unwrap(app().operator.POST("/v1/buckets/{bucket}/pause", { params: { path } })), (error) => error instanceof ProblemError && error.code === "forbidden");
  const bucket = await unwrap(onCall().operator.POST("/v1/buckets/{bucket}/pause", { params: { path }, body: { reason: "the receiver is down" } }));
  assert.equal(bucket.pause?.reason, "the receiver is down");

  const held = await app().enqueueAndWait("small", { id: "held", payload: 1 }, { wait: 1 });
  assert.ok(!held.ended);
  assert.deepEqual([held.job.state, held.job.eta, held.waited], ["queued", undefined, 1]);
  const { fetch, exchanges } = watched();
  await assert.rejects(app({ fetch }).enqueue("small", { payload: 2 }), (error) => error instanceof RefusedError && error.code === "bucket-full" && error.retryAfter === undefined);
  assert.equal(exchanges.length, 1);

  await unwrap(onCall().operator.POST("/v1/buckets/{bucket}/resume", { params: { path } }));
  const ended = await app().enqueueAndWait("small", { id: "held", payload: 1 }, { wait: 30 });
  assert.ok(ended.ended);
  assert.equal(ended.result.state, "done");
});

test("a delivery of the dispatcher is verified, also while its secret changes", limit, async (t) => {
  const [first, second] = [0, 1].map(() => `whsec_${randomBytes(32).toString("base64")}`) as [string, string];
  const receiver = await receive();
  t.after(receiver.close);
  const send = async () => {
    const job = await app().enqueue("customers", { flow: "acme", payload: { "grüße": "<&>" } });
    const arrival = await receiver.next();
    assert.deepEqual(JSON.parse(arrival.body.toString()), { "grüße": "<&>" });
    return { id: job.id, ...arrival };
  };
  const refused = (code: string) => (error: unknown) => error instanceof SignatureError && error.code === code;

  await setCustomer("acme", { url: receiver.url, add_secrets: [first] });
  const one = await send();
  const delivery = await verifyWebhook(one.headers, one.body, first);
  assert.deepEqual([delivery.id, delivery.secret], [one.id, 0]);
  assert.ok(Math.abs(delivery.timestamp.getTime() - Date.now()) < 60_000);
  await assert.rejects(verifyWebhook(one.headers, one.body, second), refused("no-match"));
  await assert.rejects(verifyWebhook(one.headers, JSON.stringify(JSON.parse(one.body.toString()), null, 1), first), refused("no-match"));
  for (const [minutes, code] of [[10, "too-old"], [-10, "too-new"]] as const) {
    await assert.rejects(verifyWebhook(one.headers, one.body, first, { now: new Date(delivery.timestamp.getTime() + minutes * 60_000) }), refused(code));
  }

  await setCustomer("acme", { add_secrets: [second] });
  const both = await send();
  for (const secret of [first, second]) assert.equal((await verifyWebhook(both.headers, both.body, secret)).id, both.id);
  assert.equal((await verifyWebhook(both.headers, both.body, [second, first])).secret, 0);

  await setCustomer("acme", { remove_secrets: [fingerprint(first)] });
  const last = await send();
  await assert.rejects(verifyWebhook(last.headers, last.body, first), refused("no-match"));
  assert.equal((await verifyWebhook(last.headers, last.body, [first, second])).secret, 1);
});
