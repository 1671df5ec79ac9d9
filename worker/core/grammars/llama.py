"""Llama 3 and 4, JSON form: an object without a wrapper, or after a tag.

Source: the models' prompt format page. An object is a call once its name was read; other objects are answers.
"""

from worker.core.grammar import Members, Tools

TOOLS_JSON = Tools(
    source="Llama 3.1 prompt format",
    call=("<|python_tag|>",),
    arguments=Members(known=("name", "type", "id", "parameters", "arguments", "function")),
    unmarked=True,
    separator=";",
    release="text",
    gap="keep",
)
