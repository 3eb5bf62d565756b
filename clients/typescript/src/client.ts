import { randomUUID } from "node:crypto";
import createClient, { type Client } from "openapi-fetch";

import { sendAll, type BatchAnswer, type Job, type Result } from "./batch.js";
import { ConnectionError, ProblemError, RefusedError, TundishError } from "./errors.js";
import { retryAfter, type Policy } from "./retry.js";
import type { components, paths } from "./schema.js";
import { passing, repeating, type Repetition } from "./transport.js";

export type Admitted = components["schemas"]["Admitted"];
export type JobResult = components["schemas"]["JobResult"];

export interface Options {
  /** The API key. Without it the server takes requests of its own machine only. */
  key?: string;
  /** The address of a dispatcher, for `operator`. By default the producer's, which serves operators with `producer.operator_api`. */
  operatorURL?: string;
  /** Tries of a request at most, 5 by default. 1 sends nothing again. */
  attempts?: number;
  /** Milliseconds that the client waits at most before a try, 30,000 by default. A longer Retry-After is thrown as an error. */
  longestWait?: number;
  /** Milliseconds for one try, 10,000 by default. */
  timeout?: number;
  fetch?: typeof fetch;
}

export interface CallOptions {
  /** Ends the call, its waits included. The call rejects with the signal's reason. */
  signal?: AbortSignal;
}

export interface EnqueueOptions extends CallOptions {
  /** Names the job in place of `id`. With API keys it is the caller's own, and the answer has the id. */
  idempotencyKey?: string;
}

export interface WaitOptions extends EnqueueOptions {
  /** Seconds to wait for the result, 1 to 290. */
  wait: number;
}

/** Waited says how a job is once its end has come or the wait is over. */
export type Waited =
  | { ended: true; result: JobResult }
  /** `waited` is how many seconds the server granted: 0 if it has no place for a further request that waits. */
  | { ended: false; job: Admitted; waited: number };

// The server waits for 300 s at most. Node's fetch gives up on the headers of an answer after 300 s, so the client asks for less.
const longestResultWait = 290;

/** Tundish is a client of the HTTP API. It has no state but its connections, and may be shared. */
export class Tundish {
  /** Typed calls of the producer's API, by openapi-fetch. Only reads are sent again. `unwrap` returns the answer or throws. */
  readonly producer: Client<paths>;
  /** The same for the operator's API. */
  readonly operator: Client<paths>;
  readonly #send: typeof fetch;
  readonly #policy: Policy;
  readonly #timeout: number;

  constructor(url: string, options: Options = {}) {
    this.#send = options.fetch ?? fetch;
    this.#policy = { attempts: positive("attempts", options.attempts ?? 5), longestWait: positive("longestWait", options.longestWait ?? 30_000) };
    this.#timeout = positive("timeout", options.timeout ?? 10_000);
    const headers = options.key === undefined ? {} : { Authorization: `Bearer ${options.key}` };
    const open = (baseUrl: string) =>
      // The API sends no redirects. Following one could carry jobs to another server.
      createClient<paths>({ baseUrl: new URL(baseUrl).href, headers, redirect: "manual", fetch: (request) => this.#typed(request) });
    this.producer = open(url);
    this.operator = open(options.operatorURL ?? url);
  }

  /**
   * enqueue puts a job in. It makes an id before the first try, unless the job has one, so a job whose reply was lost is sent
   * again as the same job. The answer then says `duplicate`.
   */
  async enqueue(bucket: string, job: Job, options: EnqueueOptions = {}): Promise<Admitted> {
    const { data } = await this.#post(bucket, job, options, {}, this.#timeout);
    return data as Admitted;
  }

  /** enqueueAndWait puts a job in and waits for its result. A job that has not ended by then goes on. */
  async enqueueAndWait(bucket: string, job: Job, options: WaitOptions): Promise<Waited> {
    const { wait } = options;
    if (!Number.isInteger(wait) || wait < 1 || wait > longestResultWait) {
      throw new RangeError(`wait is ${wait}: want whole seconds, 1 to ${longestResultWait}`);
    }
    const { data, response } = await this.#post(bucket, job, options, { Prefer: `wait=${wait}` }, wait * 1000 + this.#timeout);
    if (response.status === 200) return { ended: true, result: data as JobResult };
    const granted = /^wait=(\d+)$/.exec(response.headers.get("Preference-Applied") ?? "")?.[1];
    return { ended: false, job: data as Admitted, waited: Number(granted ?? 0) };
  }

  /**
   * enqueueBatch puts any number of jobs in, 1,000 or 8 MiB in a request. It is not atomic: each job has its own result, in
   * order. Jobs that a limit refuses for now are sent again after the time that the server says. A batch that breaks off, also
   * by its signal, is a BatchError.
   */
  async enqueueBatch(bucket: string, jobs: readonly Job[], options: CallOptions = {}): Promise<BatchAnswer> {
    const path = { bucket: named(bucket) };
    const withIDs = jobs.map((job) => ({ ...job, id: job.id ?? randomUUID() }));
    const send = repeating(this.#send, this.#policy, this.#again([502, 503, 504], this.#timeout));
    const post = async (lines: readonly string[]): Promise<readonly Result[]> => {
      const { data, error, response } = await whole(
        this.producer.POST("/v1/buckets/{bucket}/jobs/batch", {
          params: { path },
          headers: { "Content-Type": "application/x-ndjson" },
          body: lines.join("\n"),
          bodySerializer: (body) => body as string,
          fetch: send,
          ...(options.signal && { signal: options.signal }),
        }),
      );
      // A batch without an admitted job is a problem that has the results, too.
      const results = data?.results ?? error?.results;
      if (results) return results;
      throw problemOf(response, error);
    };
    return sendAll(post, withIDs, this.#policy, options.signal);
  }

  async #post(bucket: string, job: Job, { idempotencyKey, signal }: EnqueueOptions, preference: { Prefer?: string }, timeout: number) {
    const id = job.id ?? (idempotencyKey === undefined ? randomUUID() : undefined);
    try {
      const answer = await whole(
        this.producer.POST("/v1/buckets/{bucket}/jobs", {
          params: { path: { bucket: named(bucket) }, header: { ...preference, ...(idempotencyKey !== undefined && { "Idempotency-Key": idempotencyKey }) } },
          body: id === undefined ? job : { ...job, id },
          fetch: repeating(this.#send, this.#policy, this.#again(passing, timeout)),
          ...(signal && { signal }),
        }),
      );
      if (!answer.response.ok) throw problemOf(answer.response, answer.error);
      if (typeof answer.data?.id !== "string") throw new ConnectionError("the answer names no job, so it is not one of Tundish");
      return answer;
    } catch (error) {
      if (error instanceof TundishError && id !== undefined) error.id = id;
      throw error;
    }
  }

  #again(statuses: readonly number[], timeout: number): Repetition {
    return { statuses, lost: true, whole: true, timeout };
  }

  #typed(request: Request): Promise<Response> {
    const isRead = request.method === "GET";
    return repeating(this.#send, this.#policy, { statuses: isRead ? passing : [], lost: isRead, whole: false, timeout: this.#timeout })(request);
  }
}

/** unwrap returns the answer of a typed call, and throws a ProblemError if the call failed. */
export async function unwrap<T>(call: Promise<{ data?: T; error?: unknown; response: Response }>): Promise<T> {
  const { data, error, response } = await whole(call);
  if (!response.ok) throw problemOf(response, error);
  return data as T;
}

/** whole names the fault of an answer that is no JSON, as that of a proxy which asks for a login. */
async function whole<T>(call: Promise<T>): Promise<T> {
  try {
    return await call;
  } catch (error) {
    if (error instanceof SyntaxError) throw new ConnectionError(`the answer is no JSON, so it is not one of Tundish: ${error.message}`, { cause: error });
    throw error;
  }
}

function problemOf(response: Response, body: unknown): ProblemError {
  return new (response.status === 429 ? RefusedError : ProblemError)(response.status, body, retryAfter(response.headers));
}

/** named refuses what is no name of a bucket: a name such as ".." would make another path. */
function named(bucket: string): string {
  if (!/^[a-z0-9][a-z0-9_.-]{0,62}$/.test(bucket)) throw new TypeError(`bucket ${JSON.stringify(bucket)}: want lower-case letters, digits, _ . -`);
  return bucket;
}

function positive(name: string, value: number): number {
  // Node runs a timer of more than 2^31 ms at once.
  if (!(value > 0 && value <= 1e9)) throw new RangeError(`${name} is ${value}: want a number above 0, and 1,000,000,000 at most`);
  return value;
}
