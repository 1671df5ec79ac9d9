"""The parsing engine's facade."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.openai import ChatRequest
from schemas.state import ParserState
from worker.core.events import Event, Piece
from worker.core.model import Model


class Parser:
    keeps_calls = True

    @classmethod
    def for_request(cls, model: Model, request: ChatRequest) -> Parser:
        return cls()

    def start(self, prompt_token_ids: Sequence[int], history_calls: int) -> ParserState:
        return ParserState()

    def step(self, state: ParserState, pieces: Sequence[Piece]) -> tuple[list[Event], ParserState]:
        return [], state

    def finish(self, state: ParserState, finish_reason: str) -> tuple[list[Event], ParserState]:
        return [], state

    def call_id(
        self, request_id: str, choice: int, call: int, name: str, model_id: str | None, history_calls: int
    ) -> str:
        return ""
