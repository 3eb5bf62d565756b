import { Tundish, unwrap } from "@tundish/client";

const tundish = new Tundish("http://127.0.0.1:8080", { operatorURL: "http://127.0.0.1:8081" });

const waited = await tundish.enqueueAndWait("crm", { method: "GET", path: "customers/7" }, { wait: 30 });
if (waited.ended) console.log(waited.result.status, waited.result.body);

const batch = await tundish.enqueueBatch("webhooks", [{ payload: { n: 1 } }, { payload: { n: 2 } }]);
for (const result of batch.results) if (result.status !== 202) console.log(result.code, result.detail);

const path = { bucket: "webhooks" };
await unwrap(tundish.operator.POST("/v1/buckets/{bucket}/pause", { params: { path }, body: { reason: "the receiver is down" } }));
