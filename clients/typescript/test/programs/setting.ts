import { createHash } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

import { unwrap, Tundish, type Options, type ReceivedHeaders } from "@tundish/client";

/** variable is one of the test in Go that runs these tests against real programs. */
function variable(name: string): string {
  const value = process.env[name];
  if (value === undefined) throw new Error(`${name} is not set: run go test ./test -run TestTypeScriptClient`);
  return value;
}

/** The addresses of the producer, of a proxy in front of it that loses replies, of no server, and of a dispatcher. */
export const producerURL = variable("TUNDISH_URL");
export const lossyURL = variable("TUNDISH_LOSSY_URL");
export const closedURL = variable("TUNDISH_CLOSED_URL");
const operatorURL = variable("TUNDISH_OPERATOR_URL");

/** app is a client whose key may enqueue, and onCall one whose key may do everything. */
export const app = (options: Options = {}, url = producerURL) => new Tundish(url, { operatorURL, key: variable("TUNDISH_KEY"), ...options });
export const onCall = () => app({ key: variable("TUNDISH_ADMIN_KEY") });

/** Exchange is one request and its answer, by the steady clock of this process. */
export interface Exchange {
  began: number;
  ended: number;
  status: number;
  headers: Headers;
}

/** watched is a fetch that keeps what it did. */
export function watched(): { fetch: typeof fetch; exchanges: Exchange[] } {
  const exchanges: Exchange[] = [];
  return {
    exchanges,
    fetch: async (input, init) => {
      const began = performance.now();
      const response = await fetch(input, init);
      exchanges.push({ began, ended: performance.now(), status: response.status, headers: response.headers });
      return response;
    },
  };
}

export interface Arrival {
  headers: ReceivedHeaders;
  body: Buffer;
}

/** receive starts a receiver of webhooks. `next` waits for the next delivery that was not asked for yet. */
export async function receive(): Promise<{ url: string; next: () => Promise<Arrival>; close: () => void }> {
  const arrived: Arrival[] = [];
  const wake: (() => void)[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      response.writeHead(204).end();
      arrived.push({ headers: request.headers, body: Buffer.concat(chunks) });
      wake.shift()?.();
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`,
    next: async () => {
      if (arrived.length === 0) await new Promise<void>((resolve) => wake.push(resolve));
      return arrived.shift()!;
    },
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}

/** setCustomer gives a customer's flow settings, as an operator does. */
export function setCustomer(flow: string, body: { url?: string; add_secrets?: string[]; remove_secrets?: string[] }) {
  return unwrap(onCall().operator.PATCH("/v1/buckets/{bucket}/flow", { params: { path: { bucket: "customers" }, query: { flow, create: true } }, body }));
}

/** fingerprint names a secret without showing it. */
export const fingerprint = (secret: string) => createHash("sha256").update(secret).digest("hex").slice(0, 12);
