"""Plain think tags: DeepSeek R1 and its relatives, Qwen3.

Source: the chat templates of DeepSeek-R1 and Qwen3. R1 always thinks; Qwen3 has a switch, and its calls end reasoning.
"""

from worker.core.grammar import Reasoning

DEEPSEEK_R1 = Reasoning(source="chat template of DeepSeek-R1")

QWEN3 = Reasoning(source="chat template of Qwen3", switches=("enable_thinking",), tool_ends=True)

HOLO2 = Reasoning(source="chat template of Holo2", switches=("thinking", "enable_thinking"))

STEP3P5 = Reasoning(source="chat template of Step-3.5", tool_ends=True)
