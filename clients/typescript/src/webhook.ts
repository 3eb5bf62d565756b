import { timingSafeEqual, webcrypto } from "node:crypto";

/** Delivery is what the signed headers of a webhook say. */
export interface Delivery {
  /** The job's id, the same on each attempt: use it to recognise a repeated delivery. */
  id: string;
  /** When this attempt was sent. */
  timestamp: Date;
  /** Index of the secret that signed. */
  secret: number;
}

export interface VerifyOptions {
  /** Seconds by which the timestamp may differ from `now`, 300 by default. Infinity accepts any timestamp. */
  tolerance?: number;
  /** The time to compare with, by default that of this machine. */
  now?: Date;
}

export type SignatureFault = "header-missing" | "timestamp-invalid" | "too-old" | "too-new" | "no-signature" | "no-match";

/** SignatureError: the delivery is not to be trusted. Answer it with 401. No message repeats a secret. */
export class SignatureError extends Error {
  override name = "SignatureError";
  constructor(
    readonly code: SignatureFault,
    message: string,
  ) {
    super(message);
  }
}

/** ReceivedHeaders are those of fetch, or those of a request of node:http. */
export type ReceivedHeaders = Headers | Readonly<Record<string, string | readonly string[] | undefined>>;

/**
 * verifyWebhook checks the signature of a delivery as Standard Webhooks says, and throws a SignatureError if it is wrong.
 * `body` is what arrived, byte for byte: JSON that was parsed and written anew has other bytes. With several secrets one
 * that signed suffices, as while a secret changes. A secret that could not sign is a TypeError.
 */
export async function verifyWebhook(headers: ReceivedHeaders, body: Uint8Array | string, secrets: string | readonly string[], options: VerifyOptions = {}): Promise<Delivery> {
  const { tolerance = 300, now = new Date() } = options;
  // NaN would pass the comparison below.
  if (!(tolerance >= 0)) throw new RangeError(`tolerance is ${tolerance}: want seconds, 0 or more, or Infinity`);
  if (Number.isNaN(now.getTime())) throw new RangeError("now is no valid date");
  if (typeof body !== "string" && !(body instanceof Uint8Array)) {
    throw new TypeError("body is neither bytes nor text: give it as it arrived, before it is parsed");
  }
  const keys = (typeof secrets === "string" ? [secrets] : secrets).map(keyOf);
  if (keys.length === 0) throw new TypeError("there is no secret");

  const id = header(headers, "webhook-id");
  const seconds = header(headers, "webhook-timestamp");
  const signatures = versionOne(header(headers, "webhook-signature"));
  if (!/^\d{1,11}$/.test(seconds)) throw new SignatureError("timestamp-invalid", "the header webhook-timestamp has no Unix seconds");

  const content = Buffer.concat([Buffer.from(`${id}.${seconds}.`), typeof body === "string" ? Buffer.from(body) : body]);
  let secret = -1;
  for (const [i, key] of keys.entries()) {
    if (secret < 0 && (await signs(key, content, signatures))) secret = i;
  }
  if (secret < 0) {
    throw new SignatureError("no-match", "no secret matches: another secret signed, or id, timestamp and body are not as they were sent");
  }
  checkAge(Math.round(now.getTime() / 1000) - Number(seconds), tolerance);
  return { id, timestamp: new Date(Number(seconds) * 1000), secret };
}

/** checkAge refuses a signed timestamp that is too far from this machine's time. The signature is right by then, so a wrong clock is likely. */
function checkAge(age: number, tolerance: number): void {
  if (Math.abs(age) <= tolerance) return;
  const [code, is] = age > 0 ? (["too-old", "behind"] as const) : (["too-new", "ahead of"] as const);
  throw new SignatureError(
    code,
    `the signature is right, but its timestamp is ${Math.abs(age)} s ${is} the clock of this machine, and ${tolerance} s are accepted: the delivery was held up or repeated, or a clock is wrong`,
  );
}

/** signs reports whether the key made one of the signatures. One HMAC serves any number of signatures in the header. */
async function signs(key: Uint8Array, content: Uint8Array, signatures: Buffer[]): Promise<boolean> {
  const hmac = await webcrypto.subtle.importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  const want = new Uint8Array(await webcrypto.subtle.sign("HMAC", hmac, content));
  return signatures.filter((got) => got.length === want.length && timingSafeEqual(got, want)).length > 0;
}

/** versionOne returns the signatures of HMAC-SHA256. There are asymmetric ones too, v1a. */
function versionOne(text: string): Buffer[] {
  const found = text.split(/[\s]+/).filter((one) => one.startsWith("v1,"));
  if (found.length === 0) throw new SignatureError("no-signature", "the header webhook-signature has no signature of version v1");
  return found.map((one) => Buffer.from(one.slice("v1,".length), "base64"));
}

/** keyOf checks a secret: whsec_ and 24 to 64 bytes in base64. Buffer alone would take any text, and an empty key signs too. */
function keyOf(secret: string, i: number): Uint8Array {
  const text = /^whsec_([A-Za-z0-9+/]+={0,2})$/.exec(secret)?.[1] ?? "";
  const key = Buffer.from(text, "base64");
  if (key.length < 24 || key.length > 64 || key.toString("base64") !== text) {
    throw new TypeError(`secret number ${i + 1} is none: want whsec_ and 24 to 64 bytes in base64`);
  }
  return key;
}

function header(headers: ReceivedHeaders, name: string): string {
  const value = headers instanceof Headers ? headers.get(name) : Object.entries(headers).find(([key]) => key.toLowerCase() === name)?.[1];
  const text = Array.isArray(value) ? value.join(" ") : value;
  if (typeof text !== "string" || text === "") throw new SignatureError("header-missing", `the header ${name} is missing`);
  return text;
}
