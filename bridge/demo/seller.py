"""The order service as a process of its own: workers that write orders until the demo says stop.

Run by the demo as `python -m bridge.demo.seller`. Commands: `{"act": name, "messages": n,
"rate": r, "import_orders": n}` and `{"notes": path}`, which writes what the shop knows and ends it.
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from bridge.database.connection import connect
from bridge.demo.orders import Destinations, OrderService, created_key
from bridge.demo.rota import Rota, Task, Work
from bridge.demo.wire import DemoEndedError, Wire
from bridge.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge import EnqueueResult

_WORKERS = 4
_TELL_SECONDS = 0.1


@dataclass
class Notes:
    """What the shop did, kept apart from the database so that the two can be compared.

    `committed`: act, key and the machine's clock in nanoseconds right after the commit returned.
    """

    committed: list[tuple[str, str, int]] = field(default_factory=list)
    rolled_back: list[str] = field(default_factory=list)
    rollbacks: int = 0
    enqueued_twice: int = 0
    absorbed: int = 0


class Shop:
    """Workers with a connection each; one act at a time."""

    def __init__(self, url: str | None, destinations: Destinations) -> None:
        self._url = url
        self._destinations = destinations
        self._rota = Rota()
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._workers: list[threading.Thread] = []
        self.notes = Notes()

    def begin(self, act: str, messages: int, rate: float, import_orders: int = 0) -> None:
        """Let the workers write so many messages at this rate (0: as fast as they can)."""
        self._rota.begin(messages, rate, import_orders)
        self._workers = [
            threading.Thread(target=self._work, args=(act,), daemon=True) for _ in range(_WORKERS)
        ]
        for worker in self._workers:
            worker.start()

    @property
    def idle(self) -> bool:
        """Whether the act is over; raises what a worker failed with."""
        if self._error is not None:
            raise self._error
        return not any(worker.is_alive() for worker in self._workers)

    def facts(self) -> dict[str, Any]:
        """Return the counts for the demo's screen."""
        notes = self.notes
        return {
            "enqueued": len(notes.committed),
            "rolled_back": len(notes.rolled_back),
            "absorbed": notes.absorbed,
        }

    def _work(self, act: str) -> None:
        try:
            with connect(self._url, stage="orders", relay_name="demo-shop") as conn:
                service = OrderService(conn, self._destinations)
                while task := self._rota.take():
                    time.sleep(max(0.0, task.due - time.monotonic()))
                    self._run(service, task, act)
        except BaseException as error:  # noqa: BLE001 - raised again by `idle`, in the main thread
            self._error = error

    def _run(self, service: OrderService, task: Task, act: str) -> None:
        order_id = task.order_ids[0]
        if task.work is Work.DECLINE:
            service.place_and_decline(order_id)
            with self._lock:
                self.notes.rollbacks += 1
                self.notes.rolled_back.append(created_key(order_id))
            return
        results = self._write(service, task)
        now = time.time_ns()
        created = [result for result in results if result.created]
        self._rota.committed(task)
        keys = self._keys(task, created)
        with self._lock:
            if task.work in (Work.PLACE_TWICE, Work.PLACE_AGAIN):
                self.notes.enqueued_twice += 1
            self.notes.absorbed += len(results) - len(created)
            self.notes.committed.extend((act, key, now) for key in keys)

    def _write(self, service: OrderService, task: Task) -> list[EnqueueResult]:
        order_id = task.order_ids[0]
        match task.work:
            case Work.PLACE_TWICE:
                return service.place_twice(order_id)
            case Work.PAY:
                return service.pay(order_id)
            case Work.SHIP:
                return service.ship(order_id)
            case Work.TAKE_OVER:
                return service.take_over(task.order_ids)
            case _:
                return service.place(order_id)

    def _keys(self, task: Task, created: Sequence[EnqueueResult]) -> list[str]:
        if not created:
            return []
        if task.work is Work.PAY:
            order_id = task.order_ids[0]
            return [f"order-{order_id}-paid", f"order-{order_id}-receipt"]
        if task.work is Work.SHIP:
            return [f"order-{task.order_ids[0]}-shipped"]
        return [created_key(order_id) for order_id in task.order_ids]


def main() -> int:
    """Serve the demo's commands until it asks for the notes, or is gone."""
    destinations = Destinations(**orjson.loads(sys.argv[1]))
    shop = Shop(load_settings().database_url, destinations)
    wire = Wire()
    acts = 0
    try:
        wire.say(ready=True)
        while True:
            for command in wire.commands(_TELL_SECONDS):
                if "notes" in command:
                    Path(command["notes"]).write_bytes(orjson.dumps(shop.notes))
                    wire.say(written=True)
                    return 0
                shop.begin(**command)
                acts += 1
            idle = shop.idle
            wire.say(**shop.facts(), finished=acts if idle else acts - 1)
    except DemoEndedError:
        return 1


if __name__ == "__main__":
    sys.exit(main())
