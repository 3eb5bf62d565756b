import type { components } from "./schema.js";

export type Problem = components["schemas"]["Problem"];
export type Code = components["schemas"]["Code"];

/**
 * TundishError is a fault of a call: an answer that is no success, or no answer.
 * Wrong arguments are a TypeError or a RangeError, and nothing is sent then.
 */
export class TundishError extends Error {
  override name = "TundishError";
  /** The id of the job, where the call put one job in. Send the job again under this id, and it is one job. */
  id?: string;
  /** True if the server may have carried out the request, and false if it has not. */
  readonly outcomeUnknown: boolean = false;
}

/** ConnectionError: no answer arrived in any of the tries, or one that is not of Tundish. `cause` is the fault of the last try. */
export class ConnectionError extends TundishError {
  override name = "ConnectionError";
  override readonly outcomeUnknown = true;
}

/** ProblemError: the server answered with a status that is no success. */
export class ProblemError extends TundishError {
  override name = "ProblemError";
  override readonly outcomeUnknown: boolean;
  readonly status: number;
  /** The kind of the problem, such as `unknown-bucket`. Undefined if a proxy answered in place of the server. */
  readonly code: Code | undefined;
  readonly detail: string;
  /** Whole seconds to wait. Undefined if only an operator can change the answer, as of a paused bucket that is full. */
  readonly retryAfter: number | undefined;
  /** All of the answer, empty if it is no problem of RFC 9457. */
  readonly problem: Partial<Problem>;

  constructor(status: number, body: unknown, retryAfter: number | undefined) {
    const problem = isObject(body) ? (body as Partial<Problem>) : {};
    const detail = problem.detail ?? problem.title ?? (typeof body === "string" ? body.slice(0, 200) : "");
    super(`${status}${problem.code === undefined ? "" : ` ${problem.code}`}: ${detail || "the answer has no detail"}`);
    this.status = status;
    this.code = problem.code;
    this.detail = detail;
    this.retryAfter = retryAfter;
    this.problem = problem;
    // A 500 may come after the script has run, and 502 to 504 from a proxy whose connection broke.
    this.outcomeUnknown = status >= 500;
  }
}

/** RefusedError: there is no room for now (429), and nothing was spent. */
export class RefusedError extends ProblemError {
  override name = "RefusedError";
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
