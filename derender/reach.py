"""What can be wrong with a connection to Redis, as one line for whoever typed the command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from derender.__main__ import CommandError
from link.redis import FULL, UNREACHABLE, LoginError, NoPermissionError, RedisError
from producer.connection import ConfigError
from producer.publish import PublishError
from worker.settings import shown_url


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
        raise CommandError(f"Redis at {where} is full: {error}") from None
    except UNREACHABLE as error:
        if isinstance(error, OSError) and error.filename is not None:  # a file of ours, no connection
            raise CommandError(f"{error.filename}: {error.strerror}") from None
        raise CommandError(f"cannot reach Redis at {where}: {error}") from None
    except NoPermissionError as error:
        raise CommandError(f"Redis at {where} does not allow it: {error}; {needed(role)}") from None
    except RedisError as error:
        raise CommandError(f"Redis at {where} refuses us: {error}") from None
    except (ConfigError, PublishError) as error:
        raise CommandError(str(error)) from None
