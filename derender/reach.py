"""What can be wrong with a connection to Redis, as one line for whoever typed the command."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from derender.__main__ import NO_ROOM, CommandError
from link.redis import FULL, UNREACHABLE, LoginError, NoPermissionError, RedisError, connect
from producer.connection import ConfigError, NotSetUp, read_partitions
from producer.publish import PublishError
from schemas.keys import Keys
from worker.settings import shown_url

ROOM = "raise its maxmemory, or let answers go sooner (--reply-ttl-s of the workers)"
"""What to do where Redis takes no writes because it is full."""


WAIT_S = 10.0
"""For the first worker of a database, where a person waits."""


def say(line: str) -> None:
    """To whoever typed the command, beside its output."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


async def set_up(url: str, prefix: str, *, wait_s: float, say: Callable[[str], object]) -> None:
    """Wait for the first worker of a database, and `say` so if there was none yet. Raises ConfigError."""
    redis, names = connect(url), Keys(prefix)
    try:
        try:
            await read_partitions(redis, names)
        except NotSetUp as error:
            say(f"{error}; waiting up to {wait_s:.0f} s for one")
            await read_partitions(redis, names, wait_s=wait_s)
    finally:
        await redis.aclose()


def needed(role: str) -> str:
    """What to do where a user may not do the work of a role."""
    return f"log in as a user with the permissions of deploy/acl/{role}.acl"


@contextmanager
def reaching(url: str, role: str) -> Iterator[None]:
    """Work on the Redis at `url`. Raises CommandError in place of what the client raises.

    role: the file of deploy/acl whose user may do all of this work.
    """
    where = shown_url(url)
    try:
        yield
    except BrokenPipeError:
        raise  # of our own output; the client has errors of its own for its connections
    except LoginError as error:
        raise CommandError(f"Redis at {where} refuses the login: {error}") from None
    except FULL as error:
        raise CommandError(f"Redis at {where} is full: {str(error).rstrip('.')}; {ROOM}") from None
    except UNREACHABLE as error:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            raise  # of our own output too, or of the file that is written
        if isinstance(error, OSError) and error.filename is not None:  # a file of ours, no connection
            raise CommandError(f"{error.filename}: {error.strerror}") from None
        raise CommandError(f"cannot reach Redis at {where}: {error}") from None
    except NoPermissionError as error:
        raise CommandError(f"Redis at {where} does not allow it: {error}; {needed(role)}") from None
    except RedisError as error:
        raise CommandError(f"Redis at {where} refuses us: {error}") from None
    except (ConfigError, PublishError) as error:
        if isinstance(error.__cause__, FULL):
            raise CommandError(f"Redis at {where} is full: {str(error).rstrip('.')}; {ROOM}") from None
        raise CommandError(str(error)) from None
