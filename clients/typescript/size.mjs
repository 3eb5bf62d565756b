// Prints how large the client is for the program that uses it, with openapi-fetch, without comments and compressed. Above the bound it ends with 1.
import { readdirSync, readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import ts from "typescript";

const most = 10 << 10;
const compiled = readdirSync("build/src").filter((name) => name.endsWith(".js"));
if (!compiled.includes("index.js")) throw new Error("build/src has no index.js: run npm run build");
const files = [...compiled.map((name) => `build/src/${name}`), "node_modules/openapi-fetch/dist/index.mjs"];
const code = (file) => ts.transpileModule(readFileSync(file, "utf8"), { compilerOptions: { target: "es2022", module: "esnext", removeComments: true } }).outputText;
const size = (names) => gzipSync(names.map(code).join(""), { level: 9 }).length;

console.log(`${size(files)} bytes compressed, of them ${size(files.slice(0, -1))} of this package; at most ${most}`);
process.exitCode = size(files) <= most ? 0 : 1;
