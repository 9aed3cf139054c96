"""The demo's own reading outlives a server that is killed, and lets somebody start it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

from bridge.demo.shop.books import Books, Urls
from bridge.demo.shop.statements import statement
from tests.fixtures.postgres import on_one_server

if TYPE_CHECKING:
    from bridge.local.postgres import LocalPostgres


@on_one_server
def test_books_wait_for_a_killed_server_and_let_it_be_started_meanwhile(
    own_postgres: LocalPostgres,
) -> None:
    url = own_postgres.url
    with psycopg.connect(url) as conn:
        conn.execute(statement("create_charges"))
    books = Books(Urls(shop=url, payments=url, notifications=url, payment_api=url))
    books.set_fault("shop", seconds=1.0)
    started: list[bool] = []

    def start() -> None:
        if not started:
            own_postgres.start()
            started.append(True)

    books.meanwhile = start
    own_postgres.kill()
    assert books.fault("shop") == (1, None)
    assert started == [True]
    assert books.charges() == []
    books.close()
