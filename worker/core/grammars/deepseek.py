"""DeepSeek: sections with separators (V3, R1, V3.1) and DSML (V3.2, V4, V4.1).

Source: chat templates and encoding notes of the models. `｜` is U+FF5C, `▁` is U+2581.
"""

from worker.core.grammar import KEY, Header, Json, Params, Reasoning, Tools

REASONING_V3 = Reasoning(
    source="chat template of DeepSeek-V3.1", start="content", switches=("thinking", "enable_thinking")
)
REASONING_V4 = Reasoning(
    source="encoding notes of DeepSeek-V4",
    switches=("thinking", "enable_thinking"),
    effort_off=("none",),
    tool_ends=True,
    reopen=True,
)

TOOLS_V3 = Tools(
    source="chat template of DeepSeek-V3-0324",
    section=("<｜tool▁calls▁begin｜>",),
    section_close="<｜tool▁calls▁end｜>",
    call=("<｜tool▁call▁begin｜>",),
    close="<｜tool▁call▁end｜>",
    gap="keep",
    header=Header(until=("\n",), keep=("```json",), pattern=r"(?:\w*<｜tool.sep｜>)?\s*(?P<name>[^\s<]\S*?)\s*"),
    arguments=Json(lead="```json"),
    atoms=("<｜tool▁sep｜>",),
)
TOOLS_V31 = Tools(
    source="chat template of DeepSeek-V3.1",
    section=("<｜tool▁calls▁begin｜>",),
    section_close="<｜tool▁calls▁end｜>",
    call=("<｜tool▁call▁begin｜>",),
    close="<｜tool▁call▁end｜>",
    gap="keep",
    header=Header(until=("<｜tool▁sep｜>",)),
    arguments=Json(),
)


def _dsml(source: str, sections: tuple[str, ...], word: str) -> Tools:
    """DSML: the tag is text around one token; `word` goes between that token and the tag's name."""
    return Tools(
        source=source,
        section=tuple(f"<｜DSML｜{word}{name}>" for name in sections),
        section_close=f"</｜DSML｜{word}{sections[0]}>",
        call=(f"<｜DSML｜{word}invoke",),
        close=f"</｜DSML｜{word}invoke>",
        bare=True,
        gap="\n\n",
        ends_reasoning=True,
        header=Header(until=(">",), pattern=r"""\s*name=["']?(?P<name>[^"'>]*?)["']?\s*(?P<empty>/?)"""),
        arguments=Params(
            open=f"<｜DSML｜{word}parameter",
            until=">",
            close=f"</｜DSML｜{word}parameter>",
            pattern=rf"""\s*name=["']?{KEY}["']?(?:\s+string=["']?(?P<type>true|false)["']?)?\s*""",
            typing="attribute",
            untyped="json",
            json_body=True,
        ),
        atoms=("｜DSML｜",),
    )


TOOLS_V32 = _dsml("encoding notes of DeepSeek-V3.2", ("function_calls",), "")
TOOLS_V4 = _dsml("encoding notes of DeepSeek-V4", ("tool_calls", "toolcalls", "tool"), "")
TOOLS_V41 = _dsml("encoding notes of DeepSeek-V4.1", ("calls",), " ")
