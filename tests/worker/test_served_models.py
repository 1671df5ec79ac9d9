"""Models of one worker: loaded once, only when used, and one that fails takes no other down."""

from __future__ import annotations

import asyncio
import json
import logging

import msgspec
import pytest
from redis.asyncio import Redis

from schemas import keys
from schemas.keys import Keys
from schemas.request import RequestContext
from tests.conftest import DATA
from worker.batch import Rules
from worker.core.errors import ModelNotLoaded, ModelUnavailable, UnknownModel
from worker.core.model import Model
from worker.core.session import Session
from worker.drain import Drain
from worker.settings import ModelSettings
from worker.streams import Partition
from worker.tokenizer_cache import RETRY_S, ServedModels, TokenizerError, load_model

GOOD = ModelSettings(tokenizer=str(DATA / "smollm2"), served_model_name=("good", "alias"))
OTHER = ModelSettings(tokenizer=str(DATA / "smollm2"), served_model_name=("other",), max_model_len=64)
BAD = ModelSettings(tokenizer="./no/such/folder", served_model_name=("bad",))


class Loader:
    """Loads and keeps count; `clock` is moved by hand."""

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.now = 100.0

    def __call__(self, settings: ModelSettings) -> Model:
        self.loaded.append(settings.served_model_name[0])
        return load_model(settings)


def served(*models: ModelSettings) -> tuple[ServedModels, Loader]:
    loader = Loader()
    return ServedModels(models, load=loader, clock=lambda: loader.now), loader


async def test_a_model_is_loaded_once_and_only_when_it_is_used() -> None:
    models, loader = served(GOOD, OTHER)
    with pytest.raises(ModelNotLoaded) as first:
        models("alias")
    assert loader.loaded == []
    await asyncio.gather(first.value.load(), first.value.load())
    assert models("alias") is models("good") is models(None) is models("")
    assert loader.loaded == ["good"]


def test_unknown_name_is_a_404_that_names_the_known_ones() -> None:
    models, _ = served(GOOD, OTHER)
    with pytest.raises(UnknownModel) as caught:
        models("x")
    body = caught.value.body().error
    assert (body.code, body.type, body.param) == (404, "NotFoundError", "model")
    assert body.message == "model 'x' is not served here; known: alias, good, other"


def test_a_failing_model_fails_alone_and_is_tried_again_later(caplog: pytest.LogCaptureFixture) -> None:
    models, loader = served(BAD, GOOD)
    for _ in range(2):
        with pytest.raises(ModelUnavailable) as caught:
            models.now("bad")
    assert (caught.value.code, caught.value.message) == (
        503,
        "model 'bad' cannot be loaded by this worker; its log says why",
    )
    assert models.now("good").name == "good"
    assert loader.loaded == ["bad", "good"]
    loader.now += RETRY_S
    with pytest.raises(ModelUnavailable):
        models.now("bad")
    assert loader.loaded == ["bad", "good", "bad"]
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR] == [
        "model bad: tokenizer folder ./no/such/folder does not exist"
    ] * 2


def test_preload_needs_one_model_that_works() -> None:
    models, loader = served(BAD, GOOD)
    models.preload()
    assert loader.loaded == ["bad", "good"]
    with pytest.raises(TokenizerError, match=r"^tokenizer folder \./no/such/folder does not exist$"):
        served(BAD)[0].preload()


def test_an_unexpected_error_of_one_load_is_kept_with_its_type() -> None:
    def broken(settings: ModelSettings) -> Model:
        raise KeyError("decoder")

    models = ServedModels([GOOD], load=broken)
    with pytest.raises(TokenizerError, match=r"^KeyError: 'decoder'$"):
        models.preload()


def context(model: str | None, fingerprint: str | None = None) -> bytes:

    return msgspec.json.encode(RequestContext(kind="chat", model=model, fingerprint=fingerprint))


async def test_models_of_one_partition_through_redis(redis: Redis, names: Keys) -> None:
    """Two good models, a failing one, an unknown one and a wrong expectation, interleaved in one partition."""
    models, loader = served(GOOD, BAD, OTHER)
    expected = load_model(GOOD).fingerprint
    contexts = {
        "a": context("good", expected),
        "b": context("bad"),
        "c": context("other"),
        "d": context("x"),
        "e": context("other", expected),
        "f": context(None),
    }
    stream = names.chunks(0)
    for id_, value in contexts.items():
        await redis.xadd(stream, {"request_id": id_, "seq": 0, "open": value})
    for id_ in contexts:
        chunk = json.dumps({"choices": [{"index": 0, "token_ids": [19556, 28, 905, 17, 2], "finish_reason": "stop"}]})
        await redis.xadd(stream, {"request_id": id_, "seq": 1, "chunk": chunk})
    done = asyncio.Event()
    drain = Drain(
        Partition(redis, redis, names, 0, token="t"),
        Session(models),
        Rules(block_ms=20),
        leave=done.is_set,
    )
    task = asyncio.create_task(drain.run())
    while drain.counts.entries < 12:
        await asyncio.sleep(0.01)
        assert not task.done()
    done.set()
    await task
    said: dict[str, str] = {}
    for id_ in contexts:
        ((_, fields),) = await redis.xrange(names.reply(0, id_))
        if keys.CHUNK in fields:
            said[id_] = json.loads(fields[keys.CHUNK])["choices"][0]["delta"]["content"]
        else:
            error = json.loads(fields[keys.ERROR])["error"]
            said[id_] = f"{error['code']} {error['message']}"
    assert said == {
        "a": "Hello, world!",
        "b": "503 model 'bad' cannot be loaded by this worker; its log says why",
        "c": "Hello, world!",
        "d": "404 model 'x' is not served here; known: alias, bad, good, other",
        "e": f"400 the request expects configuration {expected}, but this worker serves 'other' with"
        f" {models('other').fingerprint}: tokenizer, template or parser options differ",
        "f": "Hello, world!",
    }
    assert loader.loaded == ["good", "bad", "other"]
