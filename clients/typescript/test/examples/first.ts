import { RefusedError, Tundish } from "@tundish/client";

const tundish = new Tundish(process.env["TUNDISH_URL"] ?? "http://127.0.0.1:8080", { key: process.env["TUNDISH_KEY"] ?? "" });
try {
  const job = await tundish.enqueue("webhooks", { id: "order-42", payload: { order: 42 } });
  console.log(job.id, job.state, job.eta);
} catch (error) {
  if (!(error instanceof RefusedError)) throw error;
  console.log(`${error.code}: retry in ${error.retryAfter} s`);
}
