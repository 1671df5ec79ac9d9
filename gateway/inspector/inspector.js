"use strict";
// The page keeps a generation (context and engine events), asks a worker to trace it in one or two configurations, and
// shows both traces token by token. All requests go to the gateway that served this page.

const KINDS = {
  reasoning: "reasoning", content: "content", marker: "marker, said to nobody", name: "tool name",
  argument: "tool argument", stop: "stop token or string", dropped: "dropped",
};
const OPTIONS = [
  ["reasoning_parser", "reasoning parser", "text"],
  ["tool_call_parser", "tool parser", "text"],
  ["enable_auto_tool_choice", "auto tools", "checkbox"],
  ["complete", "calls only when complete", "checkbox"],
  ["without_prompt", "as if the prompt were not known", "checkbox"],
];
const INSPECT = "../v1/inspect";
const SAMPLE_EVENT = 3; // ids in one event of a sample

const byId = (id) => document.getElementById(id);
const state = { requests: [], traces: [], position: 0, sequence: 0, answered: 0 };

// --- small helpers ----------------------------------------------------------------------------------------------------

function element(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

function say(text, isError = false) {
  byId("message").textContent = text;
  byId("message").classList.toggle("error", isError);
}

async function getJson(url, options) {
  const answer = await fetch(url, options);
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error?.message ?? `the gateway answered ${answer.status}`);
  return body;
}

function postJson(url, body) {
  return getJson(url, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
}

// 1 reply, 2 replies
function count(number, noun, plural = `${noun}s`) {
  return `${number} ${number === 1 ? noun : plural}`;
}

function visible(text) {
  return text.replaceAll("\n", "⏎\n").replaceAll("\t", "⇥\t");
}

// --- where a generation comes from ------------------------------------------------------------------------------------

// An error object's message.
function reasonOf(error) {
  return error?.error?.message ?? "no reason was given";
}

// JSON lines of a recording, or one object with context and chunks -> [{id, context, chunks}]
function readGenerations(text) {
  const trimmed = text.trim();
  if (!trimmed) throw new Error("there is nothing to read");
  const lines = trimmed.split("\n").filter((line) => line.trim());
  let objects;
  try {
    objects = [JSON.parse(trimmed)];
  } catch {
    objects = lines.map((line, at) => {
      try {
        return JSON.parse(line);
      } catch {
        throw new Error(`line ${at + 1} is no JSON`);
      }
    });
  }
  if (objects.length === 1 && objects[0].chunks) {
    return [{ id: objects[0].id ?? "pasted", context: objects[0].context ?? {}, chunks: objects[0].chunks }];
  }
  const found = new Map();
  for (const line of objects) {
    if (line.event === "open") found.set(line.request_id, { id: line.request_id, context: line.context, chunks: [] });
    else if (line.event === "chunk") found.get(line.request_id)?.chunks.push(line.chunk);
    else if (line.event === "error" && found.has(line.request_id)) found.get(line.request_id).failure = reasonOf(line.error);
  }
  if (!found.size) throw new Error("this is no recording: no line has the event open");
  return [...found.values()];
}

// What is left of a live request: its context while it is open, and its replies. Ids only where they were asked for.
async function fetchLive(id) {
  const found = await getJson(`${INSPECT}/${encodeURI(id)}`);
  const chunks = [];
  let unknown = 0;
  let failure = "";
  for (const reply of found.replies) {
    if (reply.error) failure = reasonOf(reply.error);
    for (const choice of reply.chunk?.choices ?? []) {
      if (choice.token_ids) {
        const { index, token_ids, finish_reason, stop_reason } = choice;
        chunks.push({ choices: [{ index, token_ids, finish_reason, stop_reason }] });
      } else unknown += 1;
    }
  }
  const { status, replies, last } = found;
  return { id, context: found.context ?? { kind: "chat", chat_request: { messages: [] } }, chunks, unknown, failure, status, replies, last };
}

// A sample's text as ids of the chosen model, which a worker's tokenizer makes, a few in each event.
async function generationOf({ name, text, stop }) {
  const model = byId("model").value || null;
  const [{ token_ids: ids }] = await postJson("../v1/completions/render", { model, prompt: text, add_special_tokens: false });
  const chunks = [];
  for (let at = 0; at < ids.length; at += SAMPLE_EVENT) {
    const finish_reason = at + SAMPLE_EVENT >= ids.length ? "stop" : null;
    chunks.push({ choices: [{ index: 0, token_ids: ids.slice(at, at + SAMPLE_EVENT), finish_reason }] });
  }
  return { id: name, context: { kind: "chat", model, chat_request: { messages: [], tools: SAMPLE_TOOLS, stop } }, chunks };
}

async function useSample() {
  const chosen = byId("sample").value;
  if (chosen === "") return;
  const sample = SAMPLES[Number(chosen)];
  const generation = await generationOf(sample);
  if (byId("sample").value !== chosen) return; // another one was chosen meanwhile
  setConfig("a", sample.a);
  setConfig("b", sample.b);
  useGenerations([generation], sample.note);
}

function useGenerations(generations, note = "") {
  state.requests = generations;
  byId("note").textContent = note;
  byId("note").hidden = !note;
  if (!note) byId("sample").value = "";
  byId("request").replaceChildren(...generations.map((one, at) => element("option", { value: at, textContent: one.id })));
  useRequest();
}

function current() {
  return state.requests[Number(byId("request").value)];
}

function useRequest() {
  clear(); // what is shown is another request's
  state.position = 0;
  const indexes = new Set(current().chunks.flatMap((chunk) => chunk.choices.map((choice) => choice.index)));
  const sorted = [...indexes].sort((a, b) => a - b);
  byId("choice").replaceChildren(...(sorted.length ? sorted : [0]).map((index) => element("option", { textContent: index })));
  const named = [...byId("model").options].find((option) => option.value === current().context.model);
  byId("model").value = named ? named.value : "";
  refresh();
}

// --- configurations -----------------------------------------------------------------------------------------------------

function buildConfig(name) {
  const box = byId(`config-${name}`);
  const mode = element("select", { id: `${name}-mode` });
  const modes = name === "a" ? [["own", "the model's own"], ["chosen", "these options"]]
    : [["off", "do not compare"], ["own", "the model's own"], ["chosen", "these options"]];
  mode.append(...modes.map(([value, textContent]) => element("option", { value, textContent })));
  box.append(element("label", {}, "use ", mode));
  for (const [key, label, type] of OPTIONS) {
    const input = element("input", { type, id: `${name}-${key}` });
    if (type === "text") {
      Object.assign(input, { size: 14, autocomplete: "off" });
      input.setAttribute("list", `${key}-names`);
    }
    box.append(type === "text" ? element("label", {}, label + " ", input) : element("label", {}, input, " " + label));
    input.addEventListener("change", () => {
      if (key !== "without_prompt") mode.value = "chosen";
      else if (mode.value === "off") mode.value = "own";
      refresh();
    });
  }
  mode.addEventListener("change", refresh);
  box.append(element("p", { className: "hint", id: `${name}-hint` }));
}

// Options without an effect, in the words of the worker's log.
function idle({ tool_call_parser: tool, enable_auto_tool_choice: auto }) {
  if (tool && !auto) return `tool parser ${tool} has no effect on tool_choice auto: tick auto tools`;
  if (auto && !tool) return "auto tools has no effect without a tool parser";
  return "";
}

function showHints() {
  ["a", "b"].forEach((name, which) => {
    const one = state.traces[which];
    byId(`${name}-hint`).textContent = one ? idle(one.parsers) : "";
  });
}

// options: by name; null: the model's own; left out: none.
function setConfig(name, options) {
  byId(`${name}-mode`).value = options ? "chosen" : options === null ? "own" : "off";
  for (const [key, , type] of OPTIONS) {
    byId(`${name}-${key}`)[type === "text" ? "value" : "checked"] = options?.[key] ?? (type === "text" ? "" : false);
  }
}

function config(name) {
  const value = (key) => byId(`${name}-${key}`);
  const mode = value("mode").value;
  if (mode === "off") return null;
  const parsers = mode === "own" ? null : {
    reasoning_parser: value("reasoning_parser").value.trim() || null,
    tool_call_parser: value("tool_call_parser").value.trim() || null,
    enable_auto_tool_choice: value("enable_auto_tool_choice").checked,
    tool_call_streaming: value("complete").checked ? "complete" : "eager",
  };
  return { parsers, withoutPrompt: value("without_prompt").checked };
}

async function trace(request, { parsers, withoutPrompt }) {
  const context = { ...request.context, model: byId("model").value || null };
  if (withoutPrompt || !context.prompt_token_ids) context.prompt_token_ids = [];
  return postJson(INSPECT, { context, chunks: request.chunks, index: Number(byId("choice").value), parsers });
}

// Nothing is shown until the next answer.
function clear() {
  state.traces = [];
  byId("result").hidden = true;
  for (const id of ["strips", "position", "detail-a", "detail-b"]) byId(id).replaceChildren();
  for (const id of ["tokens", "chunks"]) byId(id).tBodies[0].replaceChildren();
  showHints();
}

async function refresh() {
  const request = current();
  if (!request) return;
  const sequence = ++state.sequence;
  if (!request.chunks.length) {
    clear();
    showReplies(request);
    state.answered = sequence;
    return;
  }
  try {
    const configs = [config("a"), config("b")].filter(Boolean);
    const traces = await Promise.all(configs.map((one) => trace(request, one)));
    if (sequence !== state.sequence) return; // a newer question was asked meanwhile
    state.traces = traces;
    state.position = Math.min(state.position, Math.max(0, traces[0].tokens.length - 1));
    const ids = traces[0].tokens.length;
    const different = differences().length;
    const differ = traces.length > 1 ? `, ${different} of them ${different === 1 ? "differs" : "differ"}` : "";
    const failed = request.failure ? `; then it failed: ${request.failure}` : "";
    say(`${request.id}: ${count(ids, "token")} in ${count(traces[0].chunks.length, "event")}${differ}${failed}`, Boolean(failed));
    draw();
    showHints();
  } catch (error) {
    if (sequence !== state.sequence) return;
    clear();
    say(error.message, true);
  }
  state.answered = sequence;
}

// replies, last, status: of a live request; a recording has none.
function showReplies({ id, replies, last, unknown, failure, status }) {
  byId("result").hidden = !replies?.length;
  byId("result").classList.add("replies");
  byId("sent-title").textContent = "Replies, as they were sent";
  if (replies?.length) {
    table("chunks", ["reply", "sent", "state, bytes"], replies.map((reply) => [
      reply.id, JSON.stringify(reply.chunk?.choices?.[0]?.delta ?? reply.chunk ?? reply.error), String(reply.state_bytes ?? ""),
    ]));
  }
  const notes = [];
  if (failure) notes.push(`${id} failed: ${failure.replace(/\.$/, "")}.`);
  if (unknown) notes.push("Its replies have no token ids: open requests with return_token_ids to see tokens, or record the stream (derender record).");
  else if (!failure) notes.push(!status || status === "open" ? "It has no events yet." : `It is ${status}, and has no events.`);
  if (replies) {
    const all = count(last, "reply", "replies");
    notes.push(replies.length < last ? `The first ${replies.length} of ${all}.` : `${all}.`);
  }
  say(notes.join(" "), Boolean(failure));
}

// --- both traces, token by token -----------------------------------------------------------------------------------------

const kindsOf = (token) => token.pieces.map(([kind, text]) => `${kind} ${text}`).join("|");

function differences() {
  const [a, b] = state.traces;
  return b ? a.tokens.map((token, at) => at).filter((at) => kindsOf(a.tokens[at]) !== kindsOf(b.tokens[at])) : [];
}

function pieceNodes(token) {
  if (!token.pieces.length) return [element("span", { className: "piece kind-marker", textContent: "·", title: "no text of its own" })];
  return token.pieces.map(([kind, text]) => element("span", { className: `piece kind-${kind}`, textContent: visible(text), title: KINDS[kind] }));
}

function table(id, heads, rows) {
  const target = byId(id);
  target.tHead.replaceChildren(element("tr", {}, ...heads.map((text) => element("th", { textContent: text, scope: "col" }))));
  target.tBodies[0].replaceChildren(...rows.map((cells) => element("tr", {}, ...cells.map((cell) => {
    const node = element("td");
    node.append(...(Array.isArray(cell) ? cell : [cell]));
    if (typeof cell === "string" && /^\d+$/.test(cell)) node.className = "number";
    return node;
  }))));
}

function deltaText(delta) {
  const kept = Object.fromEntries(Object.entries(delta).filter(([, value]) => value !== null && value !== undefined));
  return Object.keys(kept).length ? JSON.stringify(kept) : "";
}

function draw() {
  const traces = state.traces;
  byId("result").hidden = false;
  byId("result").classList.remove("replies");
  byId("sent-title").textContent = "Events of the engine as they came, and what was sent for each";
  byId("result").classList.toggle("single", traces.length === 1);
  byId("next-difference").disabled = traces.length === 1;
  byId("strips").replaceChildren(...traces.map((one, which) => {
    const strip = element("div", { className: "strip", id: `strip-${"ab"[which]}` }, element("b", { textContent: "AB"[which] }));
    one.tokens.forEach((token, at) => {
      const node = element("span", { className: "token" }, ...pieceNodes(token));
      if (at && one.tokens[at - 1].chunk !== token.chunk) node.classList.add("event-start");
      node.addEventListener("click", () => go(at));
      strip.append(node);
    });
    return strip;
  }));
  const different = new Set(differences());
  const heads = ["#", "event", "id", "token", "A", ...(traces[1] ? ["", "B"] : []), "parser is in", "held", "sent", "state, bytes"];
  table("tokens", heads, traces[0].tokens.map((token, at) => {
    const other = traces[1]?.tokens[at];
    const mark = different.has(at) ? [element("span", { className: "differs", textContent: "≠", title: "differs" })] : "";
    return [
      String(at), String(token.chunk), String(token.id), token.token, pieceNodes(token), ...(other ? [mark, pieceNodes(other)] : []),
      token.region + (other && other.region !== token.region ? ` | ${other.region}` : ""), visible(token.held),
      deltaText(token.delta), String(token.state_bytes) + (other ? ` | ${other.state_bytes}` : ""),
    ];
  }));
  byId("tokens").tBodies[0].querySelectorAll("tr").forEach((row, at) => row.addEventListener("click", () => go(at)));
  table("chunks", ["event", "ids", ...traces.flatMap((_, which) => [`${"AB"[which]} sent`, "finish", "state, bytes"])],
    traces[0].chunks.map((chunk, at) => [String(at), String(chunk.tokens), ...traces.flatMap((one) => [
      deltaText(one.chunks[at].delta), one.chunks[at].finish_reason ?? "", String(one.chunks[at].state_bytes)])]));
  go(state.position, false);
}

// What a client has been told by the first tokens alone.
function saidUntil(one, position) {
  const said = { reasoning: "", content: "", calls: [] };
  for (const { delta } of one.tokens.slice(0, position + 1)) {
    said.reasoning += delta.reasoning ?? "";
    said.content += delta.content ?? "";
    for (const call of delta.tool_calls ?? []) {
      const known = (said.calls[call.index] ??= { name: "", arguments: "" });
      known.name += call.function.name ?? "";
      known.arguments += call.function.arguments ?? "";
    }
  }
  return said;
}

function drawDetail(name, one, position) {
  const token = one.tokens[position];
  const said = saidUntil(one, position);
  const rows = [
    ["token", `${token.id}  ${JSON.stringify(token.token)}${token.special ? "  (added token)" : ""}`],
    ["taken for", token.pieces.map(([kind, text]) => `${KINDS[kind]}: ${JSON.stringify(text)}`).join("\n") || "no text of its own"],
    ["parser is in", token.region || "no parser"],
    ["held", token.held ? JSON.stringify(token.held) : "nothing"],
    ["sent for it", deltaText(token.delta) || "nothing"],
    ["state", `${token.state_bytes} bytes`],
    ["reasoning so far", said.reasoning], ["content so far", said.content],
    ["calls so far", said.calls.map((call) => `${call.name}(${call.arguments})`).join("\n")],
  ];
  const { reasoning_parser, tool_call_parser, enable_auto_tool_choice } = one.parsers;
  const title = `${name.toUpperCase()}: reasoning parser ${reasoning_parser ?? "none"}, tool parser ${tool_call_parser ?? "none"}`
    + (enable_auto_tool_choice ? ", auto tools" : "") + `, configuration ${one.fingerprint}`;
  byId(`detail-${name}`).replaceChildren(element("strong", { textContent: title }),
    element("dl", {}, ...rows.flatMap(([term, text]) => [element("dt", { textContent: term }), element("dd", { textContent: text })])));
}

function go(position, scroll = true) {
  const count = state.traces[0]?.tokens.length ?? 0;
  if (!count) {
    byId("position").textContent = "no tokens";
    return;
  }
  state.position = Math.max(0, Math.min(count - 1, position));
  state.traces.forEach((one, which) => drawDetail("ab"[which], one, state.position));
  for (const strip of byId("strips").children) {
    strip.querySelectorAll(".token").forEach((node, at) => {
      node.classList.toggle("current", at === state.position);
      node.classList.toggle("later", at > state.position);
      if (at === state.position) node.setAttribute("aria-current", "true");
      else node.removeAttribute("aria-current");
    });
  }
  const rows = byId("tokens").tBodies[0].rows;
  [...rows].forEach((row, at) => row.classList.toggle("current", at === state.position));
  if (scroll) rows[state.position]?.scrollIntoView({ block: "nearest" });
  byId("position").textContent = `token ${state.position + 1} of ${count}, event ${state.traces[0].tokens[state.position].chunk + 1} of ${state.traces[0].chunks.length}`;
}

function nextChunk() {
  const tokens = state.traces[0]?.tokens ?? [];
  const at = tokens.findIndex((token, index) => index > state.position && token.chunk !== tokens[state.position].chunk);
  if (at >= 0) go(at);
}

function nextDifference() {
  const all = differences();
  if (all.length) go(all.find((at) => at > state.position) ?? all[0]);
}

const ACTIONS = {
  ArrowLeft: () => go(state.position - 1), ArrowRight: () => go(state.position + 1), Home: () => go(0),
  End: () => go(Infinity), c: nextChunk, n: nextDifference,
};

// --- start ---------------------------------------------------------------------------------------------------------------

function guarded(work) {
  return async () => {
    try {
      await work();
    } catch (error) {
      say(error.message, true);
    }
  };
}

buildConfig("a");
buildConfig("b");
byId("legend").append(...Object.entries(KINDS).map(([kind, text]) => element("li", {}, element("span", { className: `piece kind-${kind}`, textContent: text }))));
byId("sample").append(...SAMPLES.map(({ name }, at) => element("option", { value: at, textContent: name })));
byId("sample").addEventListener("change", guarded(useSample));
byId("file").addEventListener("change", guarded(async () => useGenerations(readGenerations(await byId("file").files[0].text()))));
byId("use-paste").addEventListener("click", guarded(() => useGenerations(readGenerations(byId("paste").value))));
byId("fetch").addEventListener("click", guarded(async () => useGenerations([await fetchLive(byId("live").value.trim())])));
byId("live").addEventListener("keydown", (event) => { if (event.key === "Enter") byId("fetch").click(); });
byId("request").addEventListener("change", useRequest);
byId("choice").addEventListener("change", refresh);
byId("model").addEventListener("change", guarded(() => byId("sample").value ? useSample() : refresh())); // other ids
for (const [id, key] of [["first", "Home"], ["previous", "ArrowLeft"], ["next", "ArrowRight"], ["last", "End"], ["next-chunk", "c"], ["next-difference", "n"]]) {
  byId(id).addEventListener("click", ACTIONS[key]);
}
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, select, textarea, button");
  const action = ACTIONS[event.key];
  if (!action || event.ctrlKey || event.metaKey || event.altKey || (typing && typing.tagName !== "BUTTON")) return;
  event.preventDefault();
  action();
});
getJson("../v1/models").then(({ data }) => {
  byId("model").replaceChildren(element("option", { value: "", textContent: "the default one" }),
    ...data.map(({ id }) => element("option", { value: id, textContent: id })));
}).catch((error) => say(error.message, true));
getJson("../v1/parsers").then(({ reasoning, tool }) => {
  for (const [key, names] of [["reasoning_parser", reasoning], ["tool_call_parser", tool]]) {
    byId(`${key}-names`).append(...names.map((value) => element("option", { value })));
  }
}).catch((error) => say(error.message, true));
