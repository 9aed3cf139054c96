"""What the relay answers to probes: is it alive, can it send, has it started."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.relay.vitals import Vitals
    from bridge.settings import Settings


def frozen_after(settings: Settings) -> float:
    """Return after how many seconds a silent thread is frozen; one that rests as told is not."""
    relay = settings.relay
    rest = max(relay.idle_poll, relay.sleep, relay.settle_interval)
    return max(settings.http.frozen_after, 2 * rest)


class Probes:
    """Each answer is a list of what is wrong; empty where all is well. Thread-safe.

    `frozen_after`: seconds of silence after which a thread counts as frozen. `ended` names the
    threads that have ended and should not; `obstacles` tells what keeps the relay from sending.
    """

    def __init__(
        self,
        vitals: Vitals,
        frozen_after: float,
        *,
        ended: Callable[[], list[str]],
        obstacles: Callable[[], list[str]],
    ) -> None:
        self._vitals = vitals
        self._frozen_after = frozen_after
        self._ended = ended
        self._obstacles = obstacles
        self.has_started = False
        """Whether the relay has registered; stays so until the process ends."""

    def live(self) -> list[str]:
        """Tell which threads have ended or frozen: a restart is the cure.

        Neither PostgreSQL nor Kafka has a part in it; a restart would not bring them back.
        """
        ended = [f"thread {name} has ended" for name in self._ended()]
        frozen = self._vitals.frozen(self._frozen_after)
        return ended + [
            f"thread {name} has given no sign of life for {seconds:.0f} s"
            for name, seconds in sorted(frozen.items())
        ]

    def ready(self) -> list[str]:
        """Tell why the relay cannot send now."""
        return self.started() or self._obstacles()

    def started(self) -> list[str]:
        """Tell whether the relay still starts."""
        return [] if self.has_started else ["not registered yet: it waits for Kafka or PostgreSQL"]
