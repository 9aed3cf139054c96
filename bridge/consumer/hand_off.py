"""Hands messages over to an HTTP API, each with its key, so that the API can tell a repetition.

consumer = Consumer("payments", group="charge", dead_letter_topic="payments.dead")
HandOff("https://api.example.net/charges").attach(consumer, "payment.requested")
consumer.run()
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import httpx
import orjson
from opentelemetry import propagate

from bridge.consumer.handlers import is_json
from bridge.consumer.outcomes import RejectError, RetryLaterError
from bridge.consumer.retry_after import seconds_to_wait
from bridge.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.consumer.consumer import Consumer
    from bridge.consumer.received import Received

IDEMPOTENCY_KEY = "Idempotency-Key"
_TRACE_HEADERS = ("traceparent", "tracestate", "baggage")
_OWN = frozenset({"idempotency-key", "content-type", *_TRACE_HEADERS})

# The API has too much to do, or is away: it says so before it does anything.
_OVERLOADED = frozenset({429, 503})
# Nobody's messages are taken with these: the credentials or the address are wrong.
_CLOSED = frozenset({401, 403, 407})
# Time-outs of the API's own, too early, a request with this key under way.
_AGAIN = frozenset({408, 409, 425})
_SERVER_ERROR, _CLIENT_ERROR, _REDIRECT, _OK = 500, 400, 300, 200

_MOST_EXCERPT = 500
_MOST_KEPT = 64 * 1024


class HandOff:
    """Calls `url` once for each message, with the payload's bytes and `Idempotency-Key`.

    2xx is success; a JSON answer is kept in the inbox. 429 and 503, an API that cannot be reached,
    and refused credentials (401, 403, 407) cost no attempt; Retry-After holds up every message, at
    most `longest_wait` seconds. Other 5xx, 408, 409, 425 and lost answers are charged tries with
    the same key: whether they had an effect is for the API to know. Every other 4xx goes to the
    dead-letter topic with code `HTTP_<status>`, and so does, as HANDLER_FAILED, what runs out of
    tries.

    `timeout` bounds each of connecting, sending and the wait for the answer, in seconds. `headers`
    go with every request. Connections are kept and used again. A tombstone is an empty body with
    the header `Outbox-Tombstone: true`. `transport` is httpx's, for tests.

    Raises ConfigurationError for a URL or headers that cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        timeout: float = 10.0,
        longest_wait: float = 3600.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname:
            raise ConfigurationError(
                f"hand-off URL {url!r} must begin with http:// or https:// and name a host"
            )
        for name, value in (headers or {}).items():
            if name.lower() in _OWN:
                raise ConfigurationError(f"header {name} is written by the hand-off itself")
            if not (name + value).isascii() or not (name + value).isprintable():
                raise ConfigurationError(f"header {name!r} or its value is not printable ASCII")
        self._url = url
        self._method = method
        self._headers = dict(headers or {})
        self._timeout = timeout
        self._longest_wait = longest_wait
        self._transport = transport
        self._client: httpx.AsyncClient | None = None
        self._not_before = 0.0

    def attach(self, consumer: Consumer, event_type: str = "*") -> None:
        """Let a consumer hand messages of this type (or pattern) over.

        With an inbox, known keys are absorbed without a request; the request itself runs outside of
        any transaction.
        """
        consumer.on(event_type, transaction=False)(self.send)
        consumer.at_end(self.close)

    async def send(self, payload: bytes | None, message: Received) -> dict[str, Any]:
        """Make one request; return status and, where it is JSON and small, the answer.

        Raises RetryLaterError or RejectError, which the consumer understands.
        """
        self._check_gate()
        try:
            answer = await self._opened().request(
                self._method, self._url, content=payload, headers=self._headers_of(message)
            )
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise RetryLaterError(f"{self._host} cannot be reached: {_text(error)}") from error
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise RetryLaterError(
                f"the answer of {self._host} was lost: {_text(error)}", charged=True
            ) from error
        self._judge(answer)
        return _kept(answer)

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    @property
    def _host(self) -> str:
        return urlsplit(self._url).netloc.rpartition("@")[2]

    def _opened(self) -> httpx.AsyncClient:
        if self._client is None:
            # The consumer's concurrency is the limit; a queue before the pool would be another.
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
            self._client = httpx.AsyncClient(
                timeout=self._timeout,
                limits=limits,
                follow_redirects=False,
                transport=self._transport,
            )
        return self._client

    def _headers_of(self, message: Received) -> dict[str, str]:
        headers = dict(self._headers)
        headers[IDEMPOTENCY_KEY] = header_text(message.message_key)
        headers["Outbox-Event-Type"] = header_text(message.event_type)
        if message.value is None:
            headers["Outbox-Tombstone"] = "true"
        else:
            headers["Content-Type"] = header_text(message.content_type, keep="%")
        # The span of this very handling where there is one, else what came with the message.
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        if "traceparent" not in carrier:
            carrier = {
                name: message.headers[name] for name in _TRACE_HEADERS if name in message.headers
            }
        headers.update({name: text for name, text in carrier.items() if text.isascii()})
        return headers

    def _check_gate(self) -> None:
        wait = self._not_before - time.monotonic()
        if wait > 0:
            raise RetryLaterError(
                f"{self._host} asked for a pause",
                after=wait * (1 + random.random() / 10),  # noqa: S311 - spreads requests
            )

    def _judge(self, answer: httpx.Response) -> None:
        status = answer.status_code
        if _OK <= status < _REDIRECT:
            return
        reason = f"{self._host} answered {status}: {_excerpt(answer)}"
        after = self._retry_after(answer)
        if status in _OVERLOADED:
            if after is not None:
                self._not_before = max(self._not_before, time.monotonic() + after)
            raise RetryLaterError(reason, after=after)
        if status in _CLOSED or _REDIRECT <= status < _CLIENT_ERROR:
            where = answer.headers.get("location")
            hint = f"; it redirects to {where}: say that URL" if where else "; see the credentials"
            raise RetryLaterError(reason + hint)
        if status in _AGAIN or status >= _SERVER_ERROR:
            raise RetryLaterError(reason, after=after, charged=True)
        raise RejectError(reason, code=f"HTTP_{status}")

    def _retry_after(self, answer: httpx.Response) -> float | None:
        wait = seconds_to_wait(
            answer.headers.get("retry-after"), answer.headers.get("date"), time.time()
        )
        return None if wait is None else min(wait, self._longest_wait)


def header_text(text: str, keep: str = "") -> str:
    """Return text as a header's value: as it is, or percent-encoded UTF-8 where it cannot be.

    What holds a percent sign is encoded, too (unless `keep` has it): no two texts become one.
    """
    plain = text.isascii() and text.isprintable() and text == text.strip()
    if plain and ("%" in keep or "%" not in text):
        return text
    return quote(text, safe="!#$&'()*+,/:;=?@[]^`{|}<> " if text == text.strip() else "")


def _kept(answer: httpx.Response) -> dict[str, Any]:
    kept: dict[str, Any] = {"status": answer.status_code}
    if is_json(answer.headers.get("content-type", "")) and len(answer.content) <= _MOST_KEPT:
        try:
            kept["answer"] = orjson.loads(answer.content)
        except orjson.JSONDecodeError:
            kept["answer"] = None
    return kept


def _excerpt(answer: httpx.Response) -> str:
    text = answer.content[: 4 * _MOST_EXCERPT].decode(errors="replace").strip()
    return text[:_MOST_EXCERPT] or answer.reason_phrase or "nothing"


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
