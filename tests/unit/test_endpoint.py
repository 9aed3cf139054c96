"""The HTTP server beside the relay: answers what it should, and no client can make it a burden."""

from __future__ import annotations

import re
import socket
import threading
from contextlib import ExitStack, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING

import pytest

from bridge.errors import OutboxError
from bridge.relay import endpoint as module
from bridge.relay.endpoint import MOST_CONNECTIONS, PLAIN, Answer, Endpoint
from tests.fixtures.scraping import get
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator


class Pages:
    def __init__(self) -> None:
        self.accepted: list[str] = []
        self.go_on = threading.Event()
        self.waiting = 0

    def hello(self, accept: str) -> Answer:
        self.accepted.append(accept)
        return Answer(HTTPStatus.OK, PLAIN, b"hello\n")

    def slow(self, _accept: str) -> Answer:
        self.waiting += 1
        self.go_on.wait(30)
        return Answer(HTTPStatus.OK, PLAIN, b"late\n")

    def broken(self, _accept: str) -> Answer:
        raise ValueError("no page")


@pytest.fixture
def pages() -> Pages:
    return Pages()


@pytest.fixture
def served(pages: Pages) -> Iterator[Endpoint]:
    endpoint = Endpoint(
        "127.0.0.1", 0, {"/hello": pages.hello, "/slow": pages.slow, "/broken": pages.broken}
    )
    endpoint.open()
    yield endpoint
    pages.go_on.set()
    endpoint.close()
    endpoint.close()


def url(endpoint: Endpoint, page: str = "/hello") -> str:
    return f"http://127.0.0.1:{endpoint.port}{page}"


def connect(endpoint: Endpoint) -> socket.socket:
    return socket.create_connection(("127.0.0.1", endpoint.port), timeout=30)


def test_pages_answer_get_and_head_and_see_what_the_client_accepts(
    served: Endpoint, pages: Pages
) -> None:
    page = get(url(served, "/hello?verbose"), accept="text/plain")
    assert (page.status, page.text) == (200, "hello\n")
    assert pages.accepted == ["text/plain"]
    assert page.headers["Content-Type"] == PLAIN
    assert page.headers["Server"].startswith("outbox-bridge/")
    head = get(url(served), method="HEAD")
    assert (head.status, head.text, head.headers["Content-Length"]) == (200, "", "6")


def test_other_pages_are_named(served: Endpoint) -> None:
    page = get(url(served, "/hello/../etc/passwd"))
    assert (page.status, page.text) == (404, "not here; there are: /hello /slow /broken\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(served: Endpoint, method: str) -> None:
    page = get(url(served), method=method)
    assert page.status == 405
    assert page.headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00",
        b"BREW /pot HTTP/1.1\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /" + b"x" * 70_000,
    ],
)
def test_garbage_is_refused_without_a_word_on_stderr(
    served: Endpoint, garbage: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with connect(served) as client:
        client.sendall(garbage + b"\r\n\r\n")
        client.shutdown(socket.SHUT_WR)
        try:
            answer = client.recv(65_536)
        except ConnectionResetError:  # it did not read all of it
            answer = b""
    assert re.match(rb"^(HTTP/1.0 [45]\d\d .*|)$", answer.partition(b"\r\n")[0])
    assert get(url(served)).status == 200
    assert "Traceback" not in capfd.readouterr().err


def test_a_page_that_fails_costs_its_own_answer_only(
    served: Endpoint, capfd: pytest.CaptureFixture[str]
) -> None:
    with connect(served) as client:
        client.sendall(b"GET /broken HTTP/1.0\r\n\r\n")
        assert client.recv(100) == b""
    assert get(url(served)).status == 200


def test_connections_are_bounded_and_further_ones_are_refused_at_once(
    served: Endpoint, pages: Pages
) -> None:
    with ExitStack() as stack:
        for _ in range(MOST_CONNECTIONS):
            client = stack.enter_context(connect(served))
            client.sendall(b"GET /slow HTTP/1.0\r\n\r\n")
        wait_until(lambda: pages.waiting == MOST_CONNECTIONS, "all are served")
        with connect(served) as late:
            late.sendall(b"GET /hello HTTP/1.0\r\n\r\n")
            with suppress(ConnectionResetError):
                assert late.recv(100) == b""
        pages.go_on.set()
    wait_until(lambda: _answers(served), "there is room again")


def _answers(served: Endpoint) -> bool:
    try:
        return get(url(served)).status == 200
    except OSError:
        return False


def test_a_client_that_dawdles_is_cut(served: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte now and then keeps every read within its time-out."""
    monkeypatch.setattr(module, "LONGEST_CONNECTION", 0.5)
    with connect(served) as client:
        client.sendall(b"GET /hello HTTP/1.0\r\nX: ")

        def is_cut() -> bool:
            try:
                client.sendall(b"x")
                client.settimeout(0.05)
                return client.recv(100) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        wait_until(is_cut, "the connection is cut")
    assert get(url(served)).status == 200


@pytest.mark.parametrize("host", ["::1", "localhost"])
def test_it_listens_where_it_is_told(pages: Pages, host: str) -> None:
    endpoint = Endpoint(host, 0, {"/hello": pages.hello})
    try:
        endpoint.open()
    except OutboxError as error:
        if host == "::1" and "assign" in str(error):
            return  # this machine has no IPv6
        raise
    try:
        shown = f"[{host}]" if ":" in host else host
        assert get(f"http://{shown}:{endpoint.port}/hello").status == 200
    finally:
        endpoint.close()
    assert endpoint.port == 0


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_that_cannot_be_had_is_named_with_the_way_out(host: str) -> None:
    with pytest.raises(OutboxError, match=rf"http\.host = {host}, http\.port = 0 cannot be"):
        Endpoint(host, 0, {}).open()
