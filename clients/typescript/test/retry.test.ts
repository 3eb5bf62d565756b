import assert from "node:assert/strict";
import { test } from "node:test";

import { pause, pauseBefore, retryAfter } from "../src/retry.js";

const date = "Sat, 28 Nov 2026 10:00:00 GMT";
const later = "Sat, 28 Nov 2026 10:00:07 GMT";
const policy = { attempts: 3, longestWait: 30_000 };

test("Retry-After is seconds or a date, and the date counts from that of the answer", () => {
  const wrongClock = () => Date.parse("Thu, 01 Jan 1970 00:00:00 GMT");
  for (const [headers, want] of [
    [{ "Retry-After": "12" }, 12],
    [{ "Retry-After": " 0 " }, 0],
    [{ "Retry-After": later, Date: date }, 7],
    [{ "Retry-After": date, Date: later }, 0],
    [{}, undefined],
    [{ "Retry-After": "" }, undefined],
    [{ "Retry-After": "-5" }, undefined],
    [{ "Retry-After": "1.5" }, undefined],
    [{ "Retry-After": "1e3" }, undefined],
    [{ "Retry-After": "99999999999999999999" }, undefined],
    [{ "Retry-After": "tomorrow" }, undefined],
    [{ "Retry-After": "2026-11-28T10:00:07Z", Date: date }, undefined],
    [{ "Retry-After": "Sat, 99 Nov 2026 10:00:07 GMT", Date: date }, undefined],
  ] as [Record<string, string>, number | undefined][]) {
    assert.equal(retryAfter(new Headers(headers), wrongClock), want, JSON.stringify(headers));
  }
});

test("without the answer's own Date, a date counts from this machine's clock", () => {
  const headers = new Headers({ "Retry-After": later });
  assert.equal(retryAfter(headers, () => Date.parse(date)), 7);
  assert.equal(retryAfter(headers, () => Date.parse(date) + 60_000), 0);
});

test("the pause obeys Retry-After up to the bound, and backs off without it", () => {
  const answer = (status: number, seconds?: string) => new Response(null, { status, headers: seconds === undefined ? {} : { "Retry-After": seconds } });
  const most = () => 1;
  for (const [name, outcome, failed, want] of [
    ["429 with a time", answer(429, "2"), 1, 2200],
    ["429 at the bound", answer(429, "30"), 1, 30_000],
    ["429 beyond the bound", answer(429, "31"), 1, undefined],
    ["429 without a time", answer(429), 1, undefined],
    ["503 with a time", answer(503, "1"), 2, 1100],
    ["503 without a time", answer(503), 1, 200],
    ["no answer", undefined, 2, 400],
    ["the last try", answer(503, "1"), 3, undefined],
  ] as [string, Response | undefined, number, number | undefined][]) {
    assert.equal(pauseBefore(outcome, failed, policy, most), want, name);
  }
  assert.equal(pauseBefore(undefined, 1, policy, () => 0), 0);
  assert.equal(pauseBefore(answer(429, "2"), 1, policy, () => 0), 2000);
  assert.equal(pauseBefore(undefined, 30, { attempts: 99, longestWait: 1e9 }, most), 10_000);
});

test("a signal ends a pause", async () => {
  const stop = new AbortController();
  const waiting = pause(3_600_000, stop.signal);
  stop.abort(new Error("enough"));
  await assert.rejects(waiting, /enough/);
  await assert.rejects(pause(0, stop.signal), /enough/);
});
