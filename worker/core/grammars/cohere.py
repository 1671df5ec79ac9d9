"""Command A Reasoning and Command A+: thinking, response and action between tokens; actions carry their own ids.

Source: chat templates of the models. Citation spans inside a response are text.
"""

from dataclasses import replace

from worker.core.grammar import Members, Reasoning, Tools

_COMMAND3 = ("<|START_RESPONSE|>", "<|END_RESPONSE|>")
_COMMAND4 = ("<|START_TEXT|>", "<|END_TEXT|>")

REASONING3 = Reasoning(
    source="chat template of Command A Reasoning",
    open=("<|START_THINKING|>",),
    close=("<|END_THINKING|>",),
    start="content",
    noise=_COMMAND3,
)
REASONING4 = replace(REASONING3, source="chat template of Command A+", noise=_COMMAND4)

TOOLS3 = Tools(
    source="chat template of Command A Reasoning",
    call=("<|START_ACTION|>",),
    close="<|END_ACTION|>",
    gap="keep",
    noise=_COMMAND3,
    arguments=Members(name=("tool_name",), arguments=("parameters",), array=True, id=("tool_call_id",)),
)
TOOLS4 = replace(TOOLS3, source="chat template of Command A+", noise=_COMMAND4)
