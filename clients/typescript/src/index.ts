export { BatchError, type BatchAnswer, type Job, type Result } from "./batch.js";
export { Tundish, unwrap, type Admitted, type CallOptions, type EnqueueOptions, type JobResult, type Options, type WaitOptions, type Waited } from "./client.js";
export { ConnectionError, ProblemError, RefusedError, TundishError, type Code, type Problem } from "./errors.js";
export type { components, paths } from "./schema.js";
export { SignatureError, verifyWebhook, type Delivery, type ReceivedHeaders, type SignatureFault, type VerifyOptions } from "./webhook.js";
