"""`rediss://`: worker, producer and reader on a server that speaks TLS only, with certificates made here."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from producer.connection import NotSetUp
from producer.publish import Producer
from producer.read import Reader
from tests.chaos.conftest import Fields, undisturbed_replies
from tests.chaos.fleet import Fleet
from tests.chaos.load import recorded, renamed
from tests.conftest import ON_CI, free_port

pytestmark = pytest.mark.redis
__all__ = ["undisturbed_replies"]  # a fixture


@dataclass(frozen=True)
class TlsServer:
    port: int
    folder: Path

    def url(self, authority: str = "ca") -> str:
        return f"rediss://:secret@localhost:{self.port}/0?ssl_ca_certs={self.folder / authority}.crt"


def make_certificates(folder: Path) -> None:
    """An authority, a server certificate of it for localhost, and another authority that nobody knows."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    for name in ("ca", "other"):
        openssl(
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN=test {name}",
            "-addext", "keyUsage=critical,keyCertSign", "-keyout", f"{name}.key", "-out", f"{name}.crt",
        )  # fmt: skip
    openssl(
        "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr"
    )
    (folder / "names").write_text("subjectAltName=DNS:localhost\n")
    openssl(
        "x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
        "-extfile", "names", "-out", "server.crt",
    )  # fmt: skip


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    for program in ("redis-server", "openssl"):
        if shutil.which(program) is None:
            (pytest.fail if ON_CI else pytest.skip)(f"{program} is not installed")
    folder = tmp_path_factory.mktemp("tls")
    make_certificates(folder)
    port = free_port()
    log = folder / "redis.log"
    command = [
        "redis-server", "--port", "0", "--tls-port", str(port), "--bind", "127.0.0.1", "--save", "",
        "--dir", str(folder),
        "--tls-cert-file", "server.crt", "--tls-key-file", "server.key", "--tls-ca-cert-file", "ca.crt",
        "--tls-auth-clients", "no", "--requirepass", "secret",
    ]  # fmt: skip
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=folder)
    until = time.monotonic() + 10
    while "Ready to accept connections" not in log.read_text():
        if process.poll() is not None and "Bad directive" in log.read_text():
            pytest.skip("redis-server was built without TLS")
        if process.poll() is not None or time.monotonic() > until:
            process.kill()
            pytest.fail(f"redis-server did not start: {log.read_text()}")
        time.sleep(0.02)
    yield TlsServer(port, folder)
    process.terminate()
    process.wait(timeout=10)


async def test_a_stream_over_tls(
    tls_server: TlsServer, tmp_path: Path, undisturbed_replies: dict[str, list[tuple[str, Fields]]]
) -> None:
    base, url = recorded()[0], tls_server.url()
    async with (
        Redis.from_url(url) as admin,
        Fleet(admin, url, tmp_path, partitions=1, lease_s=1.0) as fleet,
    ):
        (worker,) = await fleet.start()
        await fleet.settled()
        async with await Producer.connect(url) as producer, await Reader.connect(url) as reader:
            stream = await producer.open("tls", base.context)
            for chunk in base.chunks:
                await stream.chunk(chunk, wait=False)
            await stream.done()
            got = [(reply.id, renamed({b"chunk": reply.chunk or b""}, "tls")) async for reply in reader.follow("tls")]
        assert got == [(id_, {b"chunk": fields[b"chunk"]}) for id_, fields in undisturbed_replies[base.name]]
        assert "secret" not in worker.log
        fleet.assert_clean_logs()


@pytest.mark.parametrize("end", [Producer, Reader], ids=["producer", "reader"])
async def test_a_certificate_of_another_authority_is_refused(
    tls_server: TlsServer, end: type[Producer | Reader]
) -> None:
    with pytest.raises((ssl.SSLError, RedisConnectionError), match="certificate verify failed"):
        await end.connect(tls_server.url("other"))


@pytest.mark.parametrize("end", [Producer, Reader], ids=["producer", "reader"])
async def test_a_certificate_for_another_host_is_refused(tls_server: TlsServer, end: type[Producer | Reader]) -> None:
    url = tls_server.url().replace("localhost", "127.0.0.1")
    with pytest.raises((ssl.SSLError, RedisConnectionError), match=r"certificate is not valid for '127\.0\.0\.1'"):
        await end.connect(url)
    with pytest.raises(NotSetUp):  # it connects, and finds no derender
        await end.connect(url + "&ssl_check_hostname=false", prefix="nobodys", wait_s=0)


async def test_a_server_that_speaks_tls_only_has_no_plain_port(tls_server: TlsServer) -> None:
    with pytest.raises(RedisConnectionError):
        await Producer.connect(f"redis://:secret@localhost:{tls_server.port}/0")
