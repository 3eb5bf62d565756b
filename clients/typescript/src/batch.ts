import { ConnectionError, TundishError } from "./errors.js";
import { pause, type Policy } from "./retry.js";
import type { components } from "./schema.js";

export type Job = components["schemas"]["Job"];
export type Result = components["schemas"]["Result"];

/** BatchAnswer has a result for each job, in order. A result has the status that the job would have alone. */
export interface BatchAnswer {
  admitted: number;
  refused: number;
  results: Result[];
}

/**
 * BatchError: a batch broke off, and some of its jobs may be in. `cause` says why. `results` has undefined for a job without a known result.
 * Send `jobs` again, and none is doubled: each has an id.
 */
export class BatchError extends TundishError {
  override name = "BatchError";
  override readonly outcomeUnknown: boolean;

  constructor(
    readonly results: readonly (Result | undefined)[],
    readonly jobs: readonly Job[],
    cause: unknown,
  ) {
    const known = results.filter((result) => result !== undefined).length;
    super(`the batch broke off with ${known} of ${jobs.length} results: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
    this.outcomeUnknown = !(cause instanceof TundishError) || cause.outcomeUnknown;
  }
}

// Bounds of one request, as the server has them.
const mostJobs = 1000;
const mostBytes = 8 << 20;

/** Post sends lines of jobs as one request, and returns a result for each line. */
export type Post = (lines: readonly string[]) => Promise<readonly Result[]>;

/**
 * sendAll sends any number of jobs, in as many requests as they need. It sends jobs again that a limit refused for now, and
 * gives up after as many rounds without an admission as the policy has tries.
 */
export async function sendAll(post: Post, jobs: readonly Job[], policy: Policy, signal: AbortSignal | undefined): Promise<BatchAnswer> {
  const lines = jobs.map((job) => JSON.stringify(job));
  const results: (Result | undefined)[] = new Array(jobs.length).fill(undefined);
  try {
    for (const part of parts(lines)) {
      let left = part;
      for (let failed = 0; left.length > 0; ) {
        const answers = await post(left.map((place) => lines[place]!));
        if (answers.length !== left.length) throw new ConnectionError(`the server answered ${answers.length} results for ${left.length} jobs`);
        left.forEach((place, i) => (results[place] = answers[i]));
        failed = answers.some((answer) => answer.status === 202) ? 1 : failed + 1;
        const seconds = soonest(answers);
        if (seconds === undefined || failed >= policy.attempts || seconds * 1000 > policy.longestWait) break;
        left = left.filter((place) => isRefusedForNow(results[place]!));
        await pause(seconds * 1000, signal);
        // From here on the refusal is no longer the last word on these jobs.
        for (const place of left) results[place] = undefined;
      }
    }
  } catch (cause) {
    if (cause instanceof TundishError && !cause.outcomeUnknown && results.every((result) => result === undefined)) throw cause; // nothing is in
    throw new BatchError(results, jobs, cause);
  }
  const known = results as Result[];
  const admitted = known.filter((result) => result.status === 202).length;
  return { admitted, refused: known.length - admitted, results: known };
}

/** A refusal without a time ends when an operator acts. */
function isRefusedForNow(result: Result): boolean {
  return (result.status === 429 || result.status === 503) && result.retry_after !== undefined;
}

/** soonest is after how many seconds the first of the refused jobs may pass. */
function soonest(results: readonly Result[]): number | undefined {
  const times = results.filter(isRefusedForNow).map((result) => result.retry_after!);
  return times.length > 0 ? times.reduce((a, b) => Math.min(a, b)) : undefined;
}

/** parts divides the places of the lines into requests within the server's bounds. A line that is too long stands alone, and the server refuses it. */
function* parts(lines: readonly string[]): Generator<number[]> {
  let part: number[] = [];
  let bytes = 0;
  for (const [place, line] of lines.entries()) {
    const size = Buffer.byteLength(line) + 1; // with its newline
    if (part.length > 0 && (part.length === mostJobs || bytes + size > mostBytes)) {
      yield part;
      part = [];
      bytes = 0;
    }
    part.push(place);
    bytes += size;
  }
  if (part.length > 0) yield part;
}
