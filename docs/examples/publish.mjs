// An engine's side without any library: publish one request, follow its replies. node docs/examples/publish.mjs
import net from "node:net";

const url = new URL(process.env.DERENDER_REDIS_URL ?? "redis://127.0.0.1:6379/0");
const socket = net.createConnection({ port: Number(url.port || 6379), host: url.hostname });

// --- Redis protocol: commands out, answers in ----------------------------------------------------------------------
let buffer = Buffer.alloc(0);
const waiting = [];

function parse(at) {
  const end = buffer.indexOf("\r\n", at);
  if (end < 0) return null;
  const head = buffer.toString("utf8", at + 1, end);
  switch (String.fromCharCode(buffer[at])) {
    case "+": return [head, end + 2];
    case ":": return [Number(head), end + 2];
    case "-": return [new Error(head), end + 2];
    case "$": {
      const length = Number(head);
      if (length < 0) return [null, end + 2];
      const stop = end + 2 + length;
      return buffer.length < stop + 2 ? null : [buffer.toString("utf8", end + 2, stop), stop + 2];
    }
    case "*": {
      const items = Number(head) < 0 ? null : [];
      let next = end + 2;
      for (let i = 0; i < Number(head); i++) {
        const one = parse(next);
        if (!one) return null;
        items.push(one[0]);
        next = one[1];
      }
      return [items, next];
    }
  }
}

socket.on("data", (data) => {
  buffer = Buffer.concat([buffer, data]);
  for (let one = parse(0); one; one = buffer.length ? parse(0) : null) {
    buffer = buffer.subarray(one[1]);
    const { resolve, reject } = waiting.shift();
    one[0] instanceof Error ? reject(one[0]) : resolve(one[0]);
  }
});

function redis(...words) {
  const parts = words.map((word) => `$${Buffer.byteLength(String(word))}\r\n${word}\r\n`);
  socket.write(`*${words.length}\r\n${parts.join("")}`);
  return new Promise((resolve, reject) => waiting.push({ resolve, reject }));
}

// --- the partition of a request id: crc32 modulo the number of partitions --------------------------------------------
function crc32(text) {
  let crc = ~0;
  for (const byte of Buffer.from(text)) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (0xedb88320 & -(crc & 1));
  }
  return ~crc >>> 0;
}

// --- one request ---------------------------------------------------------------------------------------------------
const id = process.argv[2] ?? `node-${process.pid}`;
const partition = crc32(id) % Number((await redis("HGET", "derender:config", "partitions")) ?? 8);
const chunks = `derender:{${partition}}:chunks`;
let seq = 0;
const publish = (field, value) => redis("XADD", chunks, "*", "request_id", id, "seq", seq++, field, value);

await publish("open", JSON.stringify({
  kind: "chat",
  model: "smollm2-135m-instruct",
  chat_request: { messages: [{ role: "user", content: "Greet me." }], stream: true },
  prompt_tokens: 31,
  prompt_token_ids: [1, 520, 9531, 198], // the end of the rendered prompt; needed where the model has a parser
}));
await publish("chunk", JSON.stringify({ choices: [{ index: 0, token_ids: [19556, 28] }] }));
await publish("chunk", JSON.stringify({ choices: [{ index: 0, token_ids: [905, 17, 2], finish_reason: "stop" }] }));
await publish("control", "done");

let last = "0";
for (let done = false; !done;) {
  const answer = await redis("XREAD", "BLOCK", 5000, "STREAMS", `derender:{${partition}}:reply:${id}`, last);
  if (!answer) throw new Error("no reply within 5 s: is a worker running?");
  for (const [entry, words] of answer[0][1]) {
    last = entry;
    const fields = Object.fromEntries(words.flatMap((_, i) => (i % 2 ? [] : [[words[i], words[i + 1]]])));
    if (fields.error) throw new Error(fields.error);
    const [choice] = JSON.parse(fields.chunk).choices;
    console.log(entry, JSON.stringify(choice.delta.content), choice.finish_reason);
    done = "done" in fields;
  }
}
socket.end();
