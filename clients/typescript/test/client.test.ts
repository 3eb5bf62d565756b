import assert from "node:assert/strict";
import { test } from "node:test";

import { BatchError, ConnectionError, ProblemError, RefusedError, Tundish, TundishError, unwrap } from "../src/index.js";
import { fake, json } from "./fake.js";

const url = "http://127.0.0.1:1";
const admitted = { id: "a", bucket: "webhooks", flow: "", state: "queued" };
const lost = () => new TypeError("fetch failed", { cause: new Error("other side closed") });

test("a lost reply, a broken body and a 503 are sent again under one id", async () => {
  const broken = new ReadableStream({ start: (controller) => controller.error(new Error("terminated")) });
  const server = fake(lost(), new Response(broken, { status: 202 }), json(503, { code: "store-unavailable" }, { "Retry-After": "0" }), json(202, admitted));
  const client = new Tundish(url, { fetch: server.fetch, key: "tdk_1" });
  assert.deepEqual(await client.enqueue("webhooks", { payload: { n: 1 } }), admitted);
  assert.equal(new Set(server.bodies).size, 1);
  assert.match(JSON.parse(server.bodies[0]!).id, /^[A-Za-z0-9_-]{36}$/);
  assert.equal(server.requests.length, 4);
  assert.equal(server.requests[3]!.headers.get("Authorization"), "Bearer tdk_1");
});

test("the caller's id and Idempotency-Key stay as they are", async () => {
  const server = fake(json(202, admitted), lost(), json(202, admitted));
  const client = new Tundish(url, { fetch: server.fetch });
  await client.enqueue("webhooks", { id: "order-17", payload: 1 });
  await client.enqueue("webhooks", { payload: 1 }, { idempotencyKey: "order-18" });
  assert.equal(JSON.parse(server.bodies[0]!).id, "order-17");
  for (const i of [1, 2]) {
    assert.equal(JSON.parse(server.bodies[i]!).id, undefined);
    assert.equal(server.requests[i]!.headers.get("Idempotency-Key"), "order-18");
  }
});

test("without any answer the error has the id, and says why", async () => {
  const server = fake(lost(), lost());
  const failure = await new Tundish(url, { fetch: server.fetch, attempts: 2 }).enqueue("webhooks", { payload: 1 }).catch((error: unknown) => error);
  assert.ok(failure instanceof ConnectionError);
  assert.equal(failure.id, JSON.parse(server.bodies[1]!).id);
  assert.equal(failure.outcomeUnknown, true);
  assert.match(failure.message, /no answer from http:\/\/127.0.0.1:1 in 2 of at most 2 tries: other side closed/);
});

test("faults of the request, a refusal without a time and one with a long time are thrown at once", async () => {
  for (const [answer, kind, want] of [
    [json(400, { code: "invalid", detail: "id: not valid", errors: [{ field: "id", reason: "not valid" }] }), ProblemError, { status: 400, code: "invalid", detail: "id: not valid", outcomeUnknown: false }],
    [json(401, { code: "unauthorized", detail: "no key" }), ProblemError, { status: 401, code: "unauthorized" }],
    [json(429, { code: "bucket-full", detail: "full" }), RefusedError, { retryAfter: undefined, outcomeUnknown: false }],
    [json(429, { code: "limit-exceeded", detail: "used up" }, { "Retry-After": "31" }), RefusedError, { retryAfter: 31, message: "429 limit-exceeded: used up" }],
    [json(500, { code: "internal", detail: "oh" }), ProblemError, { outcomeUnknown: true }],
    [new Response("<h1>Bad request</h1>", { status: 400 }), ProblemError, { code: undefined, detail: "<h1>Bad request</h1>" }],
    [new Response(null, { status: 307, headers: { Location: "http://example.com/" } }), ProblemError, { status: 307 }],
    [new Response("<h1>Log in</h1>", { status: 200 }), ConnectionError, { message: /^the answer is no JSON/, outcomeUnknown: true }],
    [json(200, {}), ConnectionError, { message: /^the answer names no job/ }],
    [new Response("", { status: 202 }), ConnectionError, { message: /^the answer names no job/ }],
  ] as [Response, typeof TundishError, Record<string, unknown>][]) {
    const server = fake(answer);
    const failure = await new Tundish(url, { fetch: server.fetch }).enqueue("webhooks", { payload: 1 }).catch((error: unknown) => error);
    assert.ok(failure instanceof kind, String(failure));
    for (const [field, value] of Object.entries(want)) {
      const is: unknown = (failure as unknown as Record<string, unknown>)[field];
      if (value instanceof RegExp) assert.match(String(is), value);
      else assert.equal(is, value, `${field} of ${failure.message}`);
    }
    assert.equal(server.requests.length, 1);
    assert.equal(server.requests[0]!.redirect, "manual", "a redirect could carry the job elsewhere");
  }
});

/** silent never answers. */
const silent: typeof fetch = (_input, init) => new Promise((_resolve, reject) => init!.signal!.addEventListener("abort", () => reject(init!.signal!.reason as Error)));

test("a signal ends the wait for Retry-After and a request, and a timeout ends a try", async () => {
  const stop = new AbortController();
  const refusing = fake(json(429, { code: "limit-exceeded" }, { "Retry-After": "30" }));
  const refusal = new Tundish(url, {
    fetch: async (input, init) => {
      setImmediate(() => stop.abort(new Error("enough")));
      return refusing.fetch(input, init);
    },
  }).enqueue("webhooks", { payload: 1 }, { signal: stop.signal });
  await assert.rejects(refusal, /enough/);
  assert.equal(refusing.requests.length, 1);

  const leave = new AbortController();
  let requests = 0;
  const unanswered = new Tundish(url, {
    attempts: 1,
    fetch: (input, init) => {
      requests++;
      setImmediate(() => leave.abort(new Error("no longer needed")));
      return silent(input, init);
    },
  }).enqueue("webhooks", { payload: 1 }, { signal: leave.signal });
  await assert.rejects(unanswered, (error) => error === leave.signal.reason);
  assert.equal(requests, 1);

  await assert.rejects(new Tundish(url, { fetch: silent, timeout: 5, attempts: 2 }).enqueue("webhooks", { payload: 1 }), /in 2 of at most 2 tries: timeout after 0.005 s/);
});

test("a batch of any size goes in parts, with an id for each job", async () => {
  const answer = (n: number) => json(200, { admitted: n, refused: 0, results: Array.from({ length: n }, () => ({ status: 202 })) });
  const server = fake(answer(1000), answer(1), answer(2), answer(1));
  const client = new Tundish(url, { fetch: server.fetch });
  const many = await client.enqueueBatch("webhooks", Array.from({ length: 1001 }, (_, n) => ({ payload: { n } })));
  assert.deepEqual([many.admitted, many.refused, many.results.length], [1001, 0, 1001]);
  const ids = server.bodies.join("\n").split("\n").map((line) => (JSON.parse(line) as { id: string }).id);
  assert.equal(new Set(ids).size, 1001);
  const large = await client.enqueueBatch("webhooks", Array.from({ length: 3 }, () => ({ payload: "ü".repeat(1.5 * (1 << 20)) }))); // 3 MiB each
  assert.equal(large.admitted, 3);
  assert.deepEqual(server.bodies.slice(2).map((body) => body.split("\n").length), [2, 1]);
  assert.deepEqual(await client.enqueueBatch("webhooks", []), { admitted: 0, refused: 0, results: [] });
});

test("a batch sends again only what was refused for now", async () => {
  const refused = { status: 429, code: "limit-exceeded", retry_after: 0 };
  const late = { status: 503, code: "overloaded", retry_after: 0 };
  const full = { status: 429, code: "bucket-full" };
  const server = fake(
    json(200, { results: [{ status: 202, id: "a" }, late, { status: 400, code: "invalid" }, full] }),
    json(429, { code: "limit-exceeded", results: [refused] }, { "Retry-After": "0" }),
    json(200, { results: [{ status: 202, id: "b" }] }),
  );
  const jobs = ["a", "b", "c", "d"].map((id) => ({ id, payload: id }));
  const answer = await new Tundish(url, { fetch: server.fetch }).enqueueBatch("webhooks", jobs);
  assert.deepEqual(answer, { admitted: 2, refused: 2, results: [{ status: 202, id: "a" }, { status: 202, id: "b" }, { status: 400, code: "invalid" }, full] });
  assert.deepEqual(server.bodies.slice(1), ['{"id":"b","payload":"b"}', '{"id":"b","payload":"b"}']);
});

test("a batch whose refusals do not end is answered with them", async () => {
  const refused = { status: 429, code: "limit-exceeded", retry_after: 0 };
  const server = fake(...[1, 2, 3].map(() => json(429, { code: "limit-exceeded", results: [refused] }, { "Retry-After": "0" })));
  const answer = await new Tundish(url, { fetch: server.fetch, attempts: 3 }).enqueueBatch("webhooks", [{ payload: 1 }]);
  assert.deepEqual(answer, { admitted: 0, refused: 1, results: [refused] });
});

test("a batch that breaks off says what is known, and its jobs have ids", async () => {
  const refused = { status: 429, code: "limit-exceeded", retry_after: 0 };
  const server = fake(json(200, { results: [{ status: 202, id: "a" }, refused] }), lost(), lost());
  const broken = await new Tundish(url, { fetch: server.fetch, attempts: 2 }).enqueueBatch("webhooks", [{ id: "a", payload: 1 }, { payload: 2 }]).catch((error: unknown) => error);
  assert.ok(broken instanceof BatchError);
  assert.deepEqual(broken.results, [{ status: 202, id: "a" }, undefined]);
  assert.equal(broken.jobs[1]!.id, JSON.parse(server.bodies[1]!).id);
  assert.ok(broken.cause instanceof ConnectionError && broken.outcomeUnknown);
  assert.match(broken.message, /broke off with 1 of 2 results: no answer/);
});

test("a batch of which nothing went in throws the answer itself", async () => {
  const server = fake(json(403, { code: "forbidden", detail: "the key is not for this bucket" }));
  await assert.rejects(new Tundish(url, { fetch: server.fetch }).enqueueBatch("webhooks", [{ payload: 1 }]), (error) => error instanceof ProblemError && error.code === "forbidden");
});

test("a typed call sends reads again, and nothing else", async () => {
  const reads = fake(lost(), json(200, { name: "webhooks" }));
  const bucket = await unwrap(new Tundish(url, { fetch: reads.fetch }).operator.GET("/v1/buckets/{bucket}", { params: { path: { bucket: "webhooks" } } }));
  assert.equal(bucket.name, "webhooks");
  const writes = fake(lost());
  const pausing = unwrap(new Tundish(url, { fetch: writes.fetch }).operator.POST("/v1/buckets/{bucket}/pause", { params: { path: { bucket: "webhooks" } } }));
  await assert.rejects(pausing, /no answer from .* in 1 of at most 1 tries/);
  assert.equal(writes.requests.length, 1);
  const refused = fake(json(503, { code: "overloaded" }, { "Retry-After": "0" }));
  const resuming = unwrap(new Tundish(url, { fetch: refused.fetch }).operator.POST("/v1/buckets/{bucket}/resume", { params: { path: { bucket: "webhooks" } } }));
  await assert.rejects(resuming, (error) => error instanceof ProblemError && error.code === "overloaded" && error.retryAfter === 0);
  assert.equal(refused.requests.length, 1);
});

test("the operator's calls go to the dispatcher where one is named", async () => {
  const server = fake(json(200, {}), json(200, {}));
  for (const options of [{}, { operatorURL: "http://127.0.0.1:2/" }]) {
    await unwrap(new Tundish(url, { fetch: server.fetch, ...options }).operator.GET("/v1/version"));
  }
  assert.deepEqual(server.requests.map((request) => request.url), ["http://127.0.0.1:1/v1/version", "http://127.0.0.1:2/v1/version"]);
});

test("wrong arguments are told before anything is sent", async () => {
  const server = fake();
  const client = new Tundish(url, { fetch: server.fetch });
  await assert.rejects(client.enqueue("..", { payload: 1 }), /bucket "..": want lower-case letters/);
  await assert.rejects(client.enqueueBatch("a/b", [{ payload: 1 }]), TypeError);
  for (const wait of [0, 291, 1.5, NaN]) await assert.rejects(client.enqueueAndWait("webhooks", { payload: 1 }, { wait }), /want whole seconds, 1 to 290/);
  assert.throws(() => new Tundish("127.0.0.1:8080"), TypeError);
  for (const options of [{ attempts: NaN }, { attempts: 0 }, { timeout: Infinity }, { longestWait: 2 ** 31 }]) assert.throws(() => new Tundish(url, options), RangeError);
  assert.equal(server.requests.length, 0);
});
