"""The proxy that the fault tests put before servers."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.produce_errors import ProduceErrors
from tests.fixtures.proxy import Proxy
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that sends back what it gets."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve(client: socket.socket) -> None:
        with client:
            try:
                while chunk := client.recv(65_536):
                    client.sendall(chunk)
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(client,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield server.getsockname()[1]
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


def connect(proxy: Proxy) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", proxy.port))
    client.settimeout(60)
    return client


def receive(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = client.recv(size - len(data))
        if not chunk:
            break
        data += chunk
    return data


def has_ended(client: socket.socket) -> bool:
    """Whether the other side has closed or reset the connection; waits for either."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_it_passes_both_directions_and_counts(echo: int) -> None:
    large = bytes(range(256)) * 20_000
    with Proxy(echo) as proxy, connect(proxy) as client:
        sender = threading.Thread(target=client.sendall, args=(large,))
        sender.start()
        assert receive(client, len(large)) == large
        sender.join()
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
        wait_until(lambda: proxy.bytes_to_client == len(large), "all of it is counted")
        assert proxy.bytes_to_server == len(large)
        assert proxy.accepted == 1
        wait_until(lambda: proxy.connections == 0, "the connection is closed")


def test_a_black_hole_accepts_and_keeps_and_passes_on_afterwards(echo: int) -> None:
    with Proxy(echo) as proxy, connect(proxy) as old:
        old.sendall(b"before")
        assert receive(old, 6) == b"before"
        proxy.black_hole()
        with connect(proxy) as new:
            old.sendall(b"held")
            new.sendall(b"back")
            old.settimeout(0.3)
            with pytest.raises(TimeoutError):
                old.recv(1)
            old.settimeout(60)
            proxy.pass_on()
            assert receive(old, 4) == b"held"
            assert receive(new, 4) == b"back"


def test_latency_holds_each_chunk_back_in_both_directions(echo: int) -> None:
    with Proxy(echo) as proxy, connect(proxy) as client:
        proxy.delay(100)
        started = time.monotonic()
        client.sendall(b"slow")
        assert receive(client, 4) == b"slow"
        assert time.monotonic() - started >= 0.2
        proxy.pass_on()
        client.sendall(b"fast")
        assert receive(client, 4) == b"fast"


@pytest.mark.parametrize("holds", [False, True])
def test_a_cut_ends_every_connection_and_welcomes_new_ones(echo: int, *, holds: bool) -> None:
    with Proxy(echo) as proxy, connect(proxy) as old:
        old.sendall(b"x")
        assert receive(old, 1) == b"x"
        if holds:
            proxy.black_hole()
            old.sendall(b"never arrives")
        proxy.cut()
        assert has_ended(old)
        proxy.pass_on()
        with connect(proxy) as new:
            new.sendall(b"z")
            assert receive(new, 1) == b"z"


def test_a_server_that_is_gone_ends_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with Proxy(port) as proxy, connect(proxy) as client:
        assert has_ended(client)
        proxy.close()
        proxy.close()


def test_answers_to_produce_requests_alone_are_changed() -> None:
    errors = ProduceErrors()
    errors.pending.append(45)
    look, change = errors()

    def request(api: int, version: int, correlation: int) -> bytes:
        return b"\0\0\0\x08" + b"".join(
            n.to_bytes(size, "big") for n, size in ((api, 2), (version, 2), (correlation, 4))
        )

    def answer(correlation: int) -> bytes:
        # Correlation id, no tags; one topic "t" with partition 0: code, offset, then the rest.
        body = correlation.to_bytes(4, "big") + b"\0\x02\x02t\x02" + bytes(4) + bytes(10) + b"rest"
        return len(body).to_bytes(4, "big") + body

    sent = request(3, 9, 1) + request(0, 9, 2) + request(0, 9, 3)
    assert look(sent[:5]) + look(sent[5:]) == sent
    assert change(answer(1)) == answer(1)
    back = answer(2)
    changed = change(back[:7]) + change(back[7:])
    assert changed == back.replace(bytes(10) + b"rest", b"\0\x2d" + b"\xff" * 8 + b"rest")
    assert change(answer(3)) == answer(3)
    assert errors.given == 1
