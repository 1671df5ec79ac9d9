"""Muse Spark, Muse Glimmer: messages told by their recipient, calls as invoke tags in tools' messages.

Source: chat templates of Muse-Spark-1 and Muse-Glimmer. The recipient runs the tool, the invoke tag names it.
"""

from dataclasses import replace

from worker.core.grammar import KEY, Header, Messages, Params, Tools

_PARAMS = Params(
    open="<atem:parameter",
    until=">",
    close="</atem:parameter>",
    pattern=rf""".*?\bname=(?P<quote>["']?){KEY}(?P=quote)(?:\s.*)?""",
    untyped="json",
)

_TOOLS = Tools(
    source="chat template of Muse-Spark-1",
    section=("<atem:function_calls>",),
    section_close="</atem:function_calls>",
    call=("<atem:invoke",),
    close="</atem:invoke>",
    header=Header(until=(">",), pattern=r""".*?\bname=(?P<quote>["']?)(?P<name>[^"'>]*?)(?P=quote)(?:\s.*)?"""),
    arguments=_PARAMS,
)

SPARK = Messages(
    source="chat template of Muse-Spark-1",
    start="<|start|>",
    message="<|message|>",
    ends=("<|eom|>", "<|eot|>"),
    recipients=(
        ("", "reasoning"),
        ("self", "reasoning"),
        ("user", "content"),
        ("commentary", "content"),
        ("developer", "dropped"),
    ),
    headless=True,
    tools=_TOOLS,
)
GLIMMER = replace(
    SPARK,
    source="chat template of Muse-Glimmer",
    recipients=(("", "content"), ("self", "reasoning"), ("user", "content")),
    tools=replace(_TOOLS, arguments=replace(_PARAMS, typing="json")),
)
