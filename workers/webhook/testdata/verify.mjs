// Reads a JSON array of deliveries from the environment, each with a secret, headers with names in lower case and a
// body, and prints for each whether the library of Standard Webhooks accepts it. It parses the body as JSON once the signature is right,
// which an empty body is not: of that its own signature is compared.
import { Webhook } from "standardwebhooks";

console.log(JSON.stringify(JSON.parse(process.env.DELIVERIES).map(({ secret, headers, body }) => {
  try {
    if (body === "") {
      const own = new Webhook(secret).sign(headers["webhook-id"], new Date(Number(headers["webhook-timestamp"]) * 1000), body);
      return (headers["webhook-signature"] ?? "").split(" ").includes(own);
    }
    new Webhook(secret).verify(body, headers);
    return true;
  } catch (error) {
    if (error.name !== "WebhookVerificationError" && error.constructor.name !== "WebhookVerificationError") throw error;
    return false;
  }
})));
