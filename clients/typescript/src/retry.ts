import { setTimeout as wait } from "node:timers/promises";

/** Policy says how often a request is sent, and how long the client waits in between. */
export interface Policy {
  /** Tries at most, the first one included. */
  attempts: number;
  /** Milliseconds that one wait may take. An answer that asks for a longer one is handed to the caller. */
  longestWait: number;
}

const firstBackoff = 200;
const longestBackoff = 10_000;

/**
 * pauseBefore returns the milliseconds to wait before the next try, or undefined if there is none.
 * `outcome` is the answer to the last try, or undefined if there was no answer. `failed` counts the tries so far.
 *
 * A 429 without Retry-After ends when an operator acts, so there is no next try.
 */
export function pauseBefore(outcome: Response | undefined, failed: number, policy: Policy, random: () => number = Math.random): number | undefined {
  if (failed >= policy.attempts) return undefined;
  const seconds = outcome && retryAfter(outcome.headers);
  if (seconds === undefined) {
    return outcome?.status === 429 ? undefined : Math.min(backoff(failed, random), policy.longestWait);
  }
  const asked = seconds * 1000;
  // A tenth more at most, so that clients which were refused together do not come back together.
  return asked > policy.longestWait ? undefined : Math.min(asked * (1 + random() / 10), policy.longestWait);
}

/** backoff is exponential with full jitter. */
function backoff(failed: number, random: () => number): number {
  return random() * Math.min(longestBackoff, firstBackoff * 2 ** (failed - 1));
}

const httpDate = /^[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT$/;

/**
 * retryAfter returns the header Retry-After in whole seconds, or undefined if there is none that can be read.
 * Tundish sends seconds, and a gateway in front of it may send a date. The date counts from the answer's own Date,
 * because the clock of this machine may be wrong.
 */
export function retryAfter(headers: Headers, now: () => number = Date.now): number | undefined {
  const text = headers.get("Retry-After")?.trim() ?? "";
  if (/^\d{1,9}$/.test(text)) return Number(text);
  // Date.parse alone takes much that is no date of HTTP, such as "1.5".
  if (!httpDate.test(text)) return undefined;
  const date = headers.get("Date")?.trim() ?? "";
  const sent = httpDate.test(date) ? Date.parse(date) : now();
  const seconds = Math.ceil((Date.parse(text) - sent) / 1000);
  return Number.isNaN(seconds) ? undefined : Math.max(0, seconds);
}

/** pause waits, and rejects with the reason of the signal if that comes first. */
export async function pause(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
  signal?.throwIfAborted();
  try {
    await wait(milliseconds, undefined, signal && { signal });
  } catch (error) {
    signal?.throwIfAborted();
    throw error;
  }
}
