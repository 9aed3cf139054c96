from __future__ import annotations

import re
from pathlib import Path

from bridge.settings import load_settings

UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "outbox-bridge.service"


def directives() -> dict[str, str]:
    return dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text("utf-8"), re.MULTILINE))


def test_unit_gives_the_relay_longer_to_stop_than_it_takes_to_drain() -> None:
    unit = directives()
    assert float(unit["TimeoutStopSec"]) > load_settings().relay.drain_timeout + 10
    assert unit["KillSignal"] == "SIGTERM"


def test_unit_starts_the_relay_and_restarts_it_but_not_for_wrong_settings() -> None:
    unit = directives()
    assert unit["ExecStart"].endswith("/outbox-bridge relay")
    assert unit["Type"] == "notify"
    # A relay that starts while Kafka is down waits for it, alive and not ready.
    assert unit["TimeoutStartSec"] == "infinity"
    assert float(unit["WatchdogSec"]) > 0
    assert unit["Restart"] == "always"
    assert unit["RestartPreventExitStatus"].split() == ["2", "3"]
    assert unit["NoNewPrivileges"] == "yes"
