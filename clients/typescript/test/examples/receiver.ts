import { createServer } from "node:http";
import { buffer } from "node:stream/consumers";

import { SignatureError, verifyWebhook } from "@tundish/client";

createServer(async (request, response) => {
  const body = await buffer(request); // the bytes as they arrived, before any parser
  try {
    const { id } = await verifyWebhook(request.headers, body, process.env["WEBHOOK_SECRET"] ?? "");
    console.log(id, JSON.parse(body.toString()));
    response.writeHead(204).end();
  } catch (error) {
    response.writeHead(error instanceof SignatureError ? 401 : 500).end();
  }
}).listen(3000);
