"""`derender dead`: dead letters are listed without their content, shown with it, and whole work is put back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from redis.asyncio import Redis

from derender.__main__ import CommandError
from derender.dead import Letter, find, letters, requeue
from producer.publish import Producer
from producer.read import Reader
from schemas import keys
from schemas.keys import Keys, partition_of
from tests.chaos.fleet import Fleet
from tests.derender.test_cli import run

NAMES = Keys()


async def bury(redis: Redis, request_id: str, lane: str = "bulk", **entry: str) -> str:
    """A dead letter as a worker writes it; its name."""
    await redis.hset(NAMES.config, mapping={"partitions": 4, "wire_version": 1})  # type: ignore[misc]
    partition = partition_of(request_id, 4)
    fields = {"stream": lane, "entry_id": "5-0", "reason": "so it is\nsaid", "request_id": request_id, **entry}
    id_ = await redis.xadd(NAMES.dead(partition), fields)  # type: ignore[arg-type]
    return f"{partition}/{id_.decode()}"


async def test_all_partitions_the_newest_first_and_a_limit(redis: Redis) -> None:
    buried = [await bury(redis, "same", call="{}") for _ in range(3)]
    other = await bury(redis, "other-1", call="{}")
    everything = [letter.name async for letter in letters(redis, NAMES, 4, limit=100)]
    assert sorted(everything) == sorted([*buried, other])
    assert [letter.name async for letter in letters(redis, NAMES, 4, limit=100, of="same")] == buried[::-1]
    assert [letter.name async for letter in letters(redis, NAMES, 4, limit=2, of="same")] == buried[:0:-1]


async def test_more_than_one_page(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("derender.dead.PAGE", 2)
    buried = [await bury(redis, "same", call="{}") for _ in range(5)]
    assert [letter.name async for letter in letters(redis, NAMES, 4, limit=100)] == buried[::-1]


def test_a_line_names_no_content() -> None:
    fields = {
        b"stream": b"bulk",
        b"entry_id": b"5-0",
        b"reason": b"a\nb",
        b"request_id": b"r",
        b"call": b'{"x": "said"}',
    }
    letter = Letter(3, "1700000000000-0", fields)
    assert letter.line() == "3/1700000000000-0  2023-11-14T22:13:20+00:00  bulk    call             14 B  'r'  a b"
    cut = Letter(3, "1700000000000-0", {**fields, b"cut": b"1000"})
    assert cut.line().split()[4] == "1014", "as large as it was"
    assert json.loads(letter.shown()) == {
        "dead_letter": "3/1700000000000-0", "stream": "bulk", "entry_id": "5-0", "reason": "a\nb", "request_id": "r",
        "call": '{"x": "said"}',
    }  # fmt: skip


def test_bytes_that_are_no_text_are_shown() -> None:
    letter = Letter(0, "1-0", {b"request_id": b"\xff", b"\xfe": b"\x80"})
    assert json.loads(letter.shown()) == {"dead_letter": "0/1-0", "request_id": "\\xff", "\\xfe": "\\x80"}


@pytest.mark.parametrize("name", ["", "x", "1", "9/1-0", "0/", "0/x", "0/1-x", "-1/1-0"])
async def test_a_name_that_is_none(redis: Redis, name: str) -> None:
    with pytest.raises(CommandError, match="is no dead letter"):
        await find(redis, NAMES, 4, name)


async def test_a_letter_that_is_not_there(redis: Redis) -> None:
    with pytest.raises(CommandError, match="there is no dead letter 0/1-0"):
        await find(redis, NAMES, 4, "0/1-0")


@pytest.mark.parametrize("lane", ["bulk", "chunks"])
async def test_whole_work_is_put_back_and_its_failed_answer_taken_away(redis: Redis, lane: str) -> None:
    """In the stream of whole work, wherever it came from."""
    letter = await find(redis, NAMES, 4, await bury(redis, "again", lane, call='{"a": 1}'))
    await redis.set(NAMES.status(letter.partition, "again"), "failed")
    await redis.xadd(NAMES.reply(letter.partition, "again"), {"error": "{}", "done": "failed"}, id="1-0")
    assert await requeue(redis, NAMES, 4, letter) == NAMES.bulk(letter.partition)
    assert [fields for _, fields in await redis.xrange(NAMES.bulk(letter.partition))] == [
        {b"request_id": b"again", b"call": b'{"a": 1}'}
    ]
    gone = (NAMES.status(letter.partition, "again"), NAMES.reply(letter.partition, "again"))
    assert await redis.exists(*gone) == 0
    assert await redis.xlen(NAMES.dead(letter.partition)) == 0


async def test_work_from_the_wrong_partition_goes_to_the_right_one(redis: Redis) -> None:
    right = partition_of("again", 4)
    wrong = (right + 1) % 4
    id_ = await redis.xadd(NAMES.dead(wrong), {"stream": "bulk", "request_id": "again", "call": "{}"})
    await redis.set(NAMES.status(right, "again"), "failed")
    letter = await find(redis, NAMES, 4, f"{wrong}/{id_.decode()}")
    assert await requeue(redis, NAMES, 4, letter) == NAMES.bulk(right)
    assert [fields for _, fields in await redis.xrange(NAMES.bulk(right))] == [
        {b"request_id": b"again", b"call": b"{}"}
    ]
    assert await redis.exists(NAMES.bulk(wrong), NAMES.status(right, "again")) == 0
    assert await redis.xlen(NAMES.dead(wrong)) == 0


STREAMED = "is one entry of a stream, whose request has ended or never began: publish the request again, under a new id"


@pytest.mark.parametrize(
    ("request_id", "lane", "entry", "message"),
    [
        ("a", "chunks", {"chunk": "{}"}, STREAMED),
        ("a", "chunks", {"open": "{}"}, STREAMED),
        ("a", "bulk", {"open": "{}"}, STREAMED),
        ("a b", "bulk", {"call": "{}"}, "has no usable request id, so nobody could read the answer"),
        ("a", "bulk", {"call": "{", "cut": "17"}, "was too large: 17 bytes of it were not kept; publish it again"),
    ],
    ids=["chunk", "open", "open as whole work", "request id", "cut"],
)
async def test_what_cannot_be_put_back(
    redis: Redis, request_id: str, lane: str, entry: dict[str, str], message: str
) -> None:
    letter = await find(redis, NAMES, 4, await bury(redis, request_id, lane, **entry))
    with pytest.raises(CommandError) as refused:
        await requeue(redis, NAMES, 4, letter)
    assert str(refused.value) == f"{letter.name} {message}"
    assert await redis.xlen(NAMES.dead(letter.partition)) == 1


async def test_a_write_that_redis_refused_is_no_entry(redis: Redis) -> None:
    fields = {"stream": "bulk", "entry_id": "5-0", "reason": "refused: ERR", "command": "XADD", "key": "k"}
    id_ = await redis.xadd(NAMES.dead(0), fields)  # type: ignore[arg-type]
    letter = await find(redis, NAMES, 4, f"0/{id_.decode()}")
    with pytest.raises(CommandError, match="is no entry: it says what Redis refused to write"):
        await requeue(redis, NAMES, 4, letter)


async def test_work_of_an_id_that_is_open(redis: Redis) -> None:
    letter = await find(redis, NAMES, 4, await bury(redis, "a", call="{}"))
    await redis.hset(NAMES.open(letter.partition), "a", "{}")  # type: ignore[misc]
    with pytest.raises(CommandError, match="request a is open"):
        await requeue(redis, NAMES, 4, letter)


@pytest.mark.parametrize("status", ["finished", "aborted"])
async def test_work_of_an_id_that_has_an_answer_by_now(redis: Redis, status: str) -> None:
    """Of another request with the same id, or of this one that was put back before: it is not taken away."""
    letter = await find(redis, NAMES, 4, await bury(redis, "a", call="{}"))
    await redis.set(NAMES.status(letter.partition, "a"), status)
    with pytest.raises(CommandError, match=f"request a is {status}; publish the work again, under a new id"):
        await requeue(redis, NAMES, 4, letter)
    assert await redis.get(NAMES.status(letter.partition, "a")) == status.encode()
    assert await redis.xlen(NAMES.bulk(letter.partition)) == 0


@pytest.mark.redis
async def test_the_command_on_a_worker(real_redis: Redis, server_url: str, tmp_path: Path) -> None:
    """A call for a model that is not served yet: listed, shown, and answered after it was put back."""
    call = b'{"model": "later", "generate_response": {"choices": [{"index": 0, "token_ids": [19556, 28]}]}}'
    async with Fleet(real_redis, server_url, tmp_path, partitions=2, lease_s=0.6) as fleet:
        (worker,) = await fleet.start()
        async with await Producer.connect(server_url) as producer, await Reader.connect(server_url) as reader:
            await producer.call("late", call)
            assert [reply.done async for reply in reader.follow("late")] == ["failed"]
            listed = await asyncio.to_thread(run, "dead", "list", "--redis-url", server_url)
            assert (listed.returncode, listed.stderr) == (0, "")
            name, _, lane, kind, *_ = listed.stdout.split()
            assert (lane, kind) == ("bulk", "call")
            assert "19556" not in listed.stdout
            shown = await asyncio.to_thread(run, "dead", "show", name, "--redis-url", server_url)
            assert json.loads(shown.stdout)["call"] == call.decode()
            worker.process.terminate()
            await fleet.gone(worker)
            fleet.options = ("--served-model-name", "later")
            await fleet.start()
            back = await asyncio.to_thread(run, "dead", "requeue", name, "--redis-url", server_url)
            assert back.stdout == f"{name}: late is back in {NAMES.bulk(partition_of('late', 2))}\n"
            (answer,) = [reply async for reply in reader.follow("late")]
            assert answer.done == "finished"
            content = json.loads(answer.response or b"")["choices"][0]["message"]["content"]
            assert content == "Hello,"
        assert await real_redis.xlen(NAMES.dead(partition_of("late", 2))) == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["list", "0/1-0"], 2, "derender dead: list takes no letter\n"),
        (["show"], 2, "derender dead: show takes letters, as list prints them\n"),
        (["list", "--limit", "0"], 2, "derender dead: --limit has to be at least 1\n"),
        (
            ["list", "--redis-url", "redis://127.0.0.1:1/0"],
            1,
            "derender dead: cannot reach Redis at redis://127.0.0.1:1/0: Error 111 connecting to 127.0.0.1:1. "
            "Connect call failed ('127.0.0.1', 1).\n",
        ),
    ],
    ids=["list with a letter", "show without", "limit", "unreachable"],
)
def test_what_the_command_refuses(arguments: list[str], code: int, message: str) -> None:
    done = run("dead", *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", message)


def test_fields_that_are_the_letters_own() -> None:
    fields = {keys.STREAM_NAME: b"bulk", keys.ENTRY_ID: b"1-0", keys.REASON: b"r", keys.REQUEST: b"a", keys.CALL: b"{}"}
    assert Letter(0, "1-0", fields).entry == {keys.REQUEST: b"a", keys.CALL: b"{}"}
