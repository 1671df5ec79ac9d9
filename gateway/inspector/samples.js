"use strict";
// Outputs to begin with. They are texts, which a worker turns into the ids of whatever model is looked at; `a` and `b`
// are configurations that show something (null: the model's own; b left out: no comparison).

const parameters = (properties) => ({ type: "object", properties });
const SAMPLE_TOOLS = [
  ["tides", { harbour: { type: "string" }, days: { type: "integer" } }],
  ["weather", { place: { type: "string" } }],
  ["save", { file: { type: "string" }, text: { type: "string" } }],
].map(([name, properties]) => ({ type: "function", function: { name, parameters: parameters(properties) } }));

const SAMPLES = [
  {
    name: "reasoning, then an answer",
    note: "A takes what is between the markers as reasoning. B has no parser: markers are text like any other.",
    text: "<think>\nFour people, three eggs each: twelve.\n</think>\n\nTwelve eggs, so two boxes of six.",
    a: { reasoning_parser: "qwen3" },
    b: {},
  },
  {
    name: "reasoning and a tool call",
    note: "A has both parsers, which share one pass over the output. B has the tool parser alone, so the reasoning is content.",
    text: '<think>\nI need the tides of Brest.\n</think>\n\n<tool_call>\n{"name": "tides", "arguments": {"harbour": "Brest", "days": 2}}\n</tool_call>',
    a: { reasoning_parser: "qwen3", tool_call_parser: "hermes", enable_auto_tool_choice: true },
    b: { tool_call_parser: "hermes", enable_auto_tool_choice: true },
  },
  {
    name: "a marker inside an argument",
    note: "A is inside a JSON string where the model writes </tool_call>, and goes on. B runs a parser of another family and finds no call.",
    text: '<tool_call>\n{"name": "save", "arguments": {"file": "notes.txt", "text": "Close it with </tool_call>, please."}}\n</tool_call>',
    a: { tool_call_parser: "hermes", enable_auto_tool_choice: true },
    b: { tool_call_parser: "pythonic", enable_auto_tool_choice: true },
  },
  {
    name: "a call in XML, values by the tool's schema",
    note: "A makes a number of what the tool's schema says is one. B expects JSON inside the same markers, finds no call, and says all of it as content.",
    text: "<tool_call>\n<function=tides>\n<parameter=harbour>\nBrest\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
    a: { tool_call_parser: "qwen3_xml", enable_auto_tool_choice: true },
    b: { tool_call_parser: "hermes", enable_auto_tool_choice: true },
  },
  {
    name: "two calls, written as Python",
    note: "Both find the same calls. B sends each when its end was seen: compare what was sent for each event.",
    text: '[tides(harbour="Brest", days=2), weather(place="Brest")]',
    a: { tool_call_parser: "pythonic", enable_auto_tool_choice: true },
    b: { tool_call_parser: "pythonic", enable_auto_tool_choice: true, complete: true },
  },
  {
    name: "a stop string",
    note: "The request has the stop string \" three\". Text that may be its beginning is held until the next token decides.",
    text: "One egg, two eggs, three eggs, four eggs.",
    stop: " three",
    a: null,
  },
];
