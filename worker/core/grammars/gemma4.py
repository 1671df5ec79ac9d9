"""Gemma 4, FunctionGemma: an object syntax of its own, strings between delimiter tokens, reasoning in a channel.

Source: chat templates of Gemma 4 and FunctionGemma.
"""

from worker.core.grammar import Header, Literals, Reasoning, Tools

REASONING = Reasoning(
    source="chat template of Gemma 4",
    open=("<|channel>",),
    close=("<channel|>",),
    start="content",
    tool_ends=True,
    reopen=True,
    label="thought",
)

TOOLS = Tools(
    source="chat template of Gemma 4",
    call=("<|tool_call>",),
    close="<tool_call|>",
    gap="keep",
    always_native=True,
    header=Header(until=(), keep=("{", "<tool_call|>"), pattern=r"\s*(?:call)?:?\s*(?P<name>[^\s:]+)\s*"),
    arguments=Literals(delimiter='<|"|>'),
)

TOOLS_FUNCTION = Tools(
    source="chat template of FunctionGemma",
    call=("<start_function_call>",),
    close="<end_function_call>",
    gap="keep",
    header=Header(until=(), keep=("{", "<end_function_call>"), pattern=r"\s*(?:call)?:?\s*(?P<name>[^\s:]+)\s*"),
    arguments=Literals(delimiter="<escape>", decoded=True),
)
