const assert = require("node:assert");
const { fork } = require("node:child_process");
const { once } = require("node:events");
const fs = require("node:fs/promises");
const http = require("node:http");
const test = require("node:test");
const { Worker } = require("node:worker_threads");

test("a thread answers", async () => {
  const worker = new Worker("require('worker_threads').parentPort.postMessage(42)", { eval: true });
  assert.deepStrictEqual(await once(worker, "message"), [42]);
});

test("a child process answers over its channel", async () => {
  await fs.writeFile("child.js", "process.on('message', (n) => { process.send(2 * n); process.disconnect(); })");
  const child = fork("./child.js");
  child.send(21);
  assert.strictEqual((await once(child, "message"))[0], 42);
});

test("a server on loopback answers", async () => {
  const server = http.createServer((_, response) => response.end("page")).listen(0, "127.0.0.1");
  await once(server, "listening");
  const response = await fetch(`http://127.0.0.1:${server.address().port}/`);
  assert.strictEqual(await response.text(), "page");
  server.closeAllConnections();
  server.close();
});

test("a file is watched", async () => {
  const changes = fs.watch(".");
  await Promise.all([changes.next(), fs.writeFile("seen", "x")]);
  await changes.return();
});
