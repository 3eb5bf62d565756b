import { ConnectionError } from "./errors.js";
import { pause, pauseBefore, type Policy } from "./retry.js";

/** Send is fetch, as openapi-fetch calls it. */
export type Send = (request: Request) => Promise<Response>;

/** Repetition says what is sent again. */
export interface Repetition {
  /** The statuses after which a request is sent again. */
  statuses: readonly number[];
  /** Send a request again that had no answer. Right only where a second request changes nothing. */
  lost: boolean;
  /** Read the body within the try, so that a body that breaks off counts as no answer. Wrong for streams. */
  whole: boolean;
  /** Milliseconds for one try: until the headers of the answer, or until its end if it is read whole. */
  timeout: number;
}

/** The statuses that may change with time. 502 and 504 come from proxies in between. */
export const passing = [429, 502, 503, 504] as const;

/** repeating returns a Send that tries several times. It returns the last answer, or throws a ConnectionError if there was none. */
export function repeating(send: typeof fetch, policy: Policy, repetition: Repetition): Send {
  return async (request) => {
    for (let failed = 1; ; failed++) {
      let response: Response | undefined;
      let fault: unknown;
      try {
        response = await once(send, request, repetition);
      } catch (error) {
        request.signal.throwIfAborted(); // the caller has given up: not a fault of the connection
        fault = error;
      }
      const isFinal = response ? !repetition.statuses.includes(response.status) : !repetition.lost;
      const milliseconds = isFinal ? undefined : pauseBefore(response, failed, policy);
      if (milliseconds === undefined) {
        if (response) return response;
        throw new ConnectionError(`no answer from ${new URL(request.url).origin} in ${failed} of at most ${repetition.lost ? policy.attempts : 1} tries: ${reason(fault)}`, { cause: fault });
      }
      await response?.body?.cancel(); // an unread body would hold its connection
      await pause(milliseconds, request.signal);
    }
  };
}

async function once(send: typeof fetch, request: Request, { whole, timeout }: Repetition): Promise<Response> {
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(new Error(`timeout after ${timeout / 1000} s`)), timeout);
  try {
    // The clone keeps the body for the next try.
    const response = await send(request.clone(), { signal: AbortSignal.any([request.signal, late.signal]) });
    if (!whole) return response;
    const body = await response.arrayBuffer();
    return new Response(body.byteLength > 0 ? body : null, response);
  } finally {
    clearTimeout(timer);
  }
}

/** reason is why there was no answer. fetch hides the fault of the connection in `cause`. */
function reason(fault: unknown): string {
  const inner = fault instanceof Error && fault.cause instanceof Error ? fault.cause : fault;
  if (!(inner instanceof Error)) return String(inner);
  return inner.message || (inner as NodeJS.ErrnoException).code || inner.name;
}
