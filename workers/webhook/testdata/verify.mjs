// Reads a JSON array of deliveries from the environment, each with a secret, headers with names in lower case and a
// body, and prints for each whether the library of Standard Webhooks accepts it.
import { Webhook } from "standardwebhooks";

console.log(JSON.stringify(JSON.parse(process.env.DELIVERIES).map(({ secret, headers, body }) => {
  try {
    new Webhook(secret).verify(body, headers);
    return true;
  } catch (error) {
    if (error.name !== "WebhookVerificationError" && error.constructor.name !== "WebhookVerificationError") throw error;
    return false;
  }
})));
