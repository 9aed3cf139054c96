"""What is deployed beside the relay names only what it has: metrics, labels, pages, settings.

`test_running_relay.py` holds the names in `METRICS` against what a running relay exports.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bridge.settings import load_settings
from bridge.telemetry.names import METRICS, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.telemetry.conftest import PromtoolFunction

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
RULES = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"][0]["rules"]
TESTS = yaml.safe_load((PROMETHEUS / "alerts.test.yml").read_text())["tests"]
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "outbox-bridge.json").read_text())
RUNBOOK = ROOT / "docs" / "runbook.md"
MANIFESTS = list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "relay.yaml").read_text()))

# Every process exports these, and Prometheus itself says `up`.
FOREIGN: dict[str, set[str]] = {
    "up": set(),
    "process_start_time_seconds": set(),
    "process_cpu_seconds_total": set(),
    "process_resident_memory_bytes": set(),
}
OF_THE_TARGET = {"job", "instance"}


def known() -> dict[str, set[str]]:
    """Return the labels of every series that may be asked for."""
    series = dict(FOREIGN)
    for metric in METRICS:
        labels = set(metric.prometheus_labels)
        if metric.kind is Kind.HISTOGRAM:
            series[f"{metric.prometheus_name}_bucket"] = labels | {"le"}
            series[f"{metric.prometheus_name}_count"] = labels
            series[f"{metric.prometheus_name}_sum"] = labels
        else:
            series[metric.prometheus_name] = labels
    return series


SERIES = known()
_SELECTOR = re.compile(r"\b([a-zA-Z_:][\w:]*)(?:\{([^}]*)\})?")
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring)\s*\([^)]*\)")
_WORDS = {"or", "and", "unless"}


def series_of(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Yield the series that an expression asks for, with the labels that it selects by."""
    rest = re.sub(r"\[[^\]]*\]", "", _GROUPING.sub(" ", expression))
    for match in _SELECTOR.finditer(rest):
        name, labels = match[1], match[2] or ""
        is_function = rest[match.end() :].lstrip().startswith("(")
        if name in _WORDS or is_function:
            continue
        yield name, set(re.findall(r"(\w+)\s*[=!]", labels))


def groupings_of(expression: str) -> set[str]:
    found = re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", expression)
    return {label.strip() for labels in found for label in labels.split(",")}


def dashboard_queries() -> dict[str, str]:
    return {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", [])
    }


EXPRESSIONS = {rule["alert"]: rule["expr"] for rule in RULES} | dashboard_queries()


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS.keys())
def test_queries_ask_for_series_and_labels_that_the_code_exports(expression: str) -> None:
    asked = list(series_of(expression))
    assert asked
    for name, labels in asked:
        assert name in SERIES, f"nobody exports {name}"
        assert labels <= SERIES[name] | OF_THE_TARGET, name
    assert groupings_of(expression) <= set().union(*(SERIES[name] for name, _ in asked)) | (
        OF_THE_TARGET
    )


def test_a_query_for_what_nobody_exports_would_be_found() -> None:
    (asked,) = series_of(
        'sum by (job) (rate(outbox_bridge_no_such{job="$job", kind=~"a"}[5m])) > 0'
    )
    assert asked == ("outbox_bridge_no_such", {"job", "kind"})
    assert asked[0] not in SERIES


def test_every_metric_of_the_backlog_and_of_trouble_is_watched() -> None:
    watched = {name for expression in EXPRESSIONS.values() for name, _ in series_of(expression)}
    unwatched = set(SERIES) - watched - set(FOREIGN)
    assert all(name.endswith(("_count", "_sum")) for name in unwatched), unwatched


def test_prometheus_accepts_rules_and_scrape_configuration(promtool: PromtoolFunction) -> None:
    assert (done := promtool("check", "config", "scrape.yml", cwd=PROMETHEUS)).returncode == 0, (
        done.stderr
    )


def test_prometheus_accepts_the_queries_of_the_dashboard(
    promtool: PromtoolFunction, tmp_path: Path
) -> None:
    """They are checked as if they were alerts, with Grafana's variables filled in."""
    rules = [
        {"alert": f"Query{number}", "expr": query.replace("$__rate_interval", "5m")}
        for number, query in enumerate(dashboard_queries().values())
    ]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = promtool("check", "rules", str(file))
    assert done.returncode == 0, done.stderr


def test_alerts_fire_when_they_should_and_only_then(promtool: PromtoolFunction) -> None:
    done = promtool("test", "rules", "alerts.test.yml", cwd=PROMETHEUS)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_each_alert_is_tested_both_ways_and_stands_in_the_runbook(rule: dict[str, Any]) -> None:
    name = rule["alert"]
    checks = [
        check for test in TESTS for check in test["alert_rule_test"] if check["alertname"] == name
    ]
    assert any(check["exp_alerts"] for check in checks)
    assert any(not check["exp_alerts"] for check in checks)
    assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{name.lower()}"
    assert rule["labels"]["severity"] in {"page", "ticket"}
    section = re.search(
        rf"^### {name}\n(.*?)(?=^##|\Z)", RUNBOOK.read_text(), re.MULTILINE | re.DOTALL
    )
    assert section is not None
    assert f"- **Means:** ({rule['labels']['severity']})" in section[1]
    assert "- **Look:** " in section[1]
    assert "- **Do:** " in section[1]


def test_the_runbook_has_no_alert_that_is_none() -> None:
    alerts = RUNBOOK.read_text().partition("## Alerts")[2]
    assert re.findall(r"^### (OutboxBridge\w+)", alerts, re.MULTILINE) == [
        rule["alert"] for rule in RULES
    ]


def test_panels_have_a_description_a_place_of_their_own_and_the_chosen_data_source() -> None:
    panels = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert all(panel["description"] for panel in panels)
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    sources = {
        source["uid"]
        for panel in panels
        for source in (panel["datasource"], *(target["datasource"] for target in panel["targets"]))
    }
    assert sources == {"${datasource}"}
    assert all('job="$job"' in query for query in dashboard_queries().values())


def test_kubernetes_probes_ask_the_pages_that_there_are_at_the_port_that_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config, deployment, budget = MANIFESTS
    assert [one["kind"] for one in MANIFESTS] == ["ConfigMap", "Deployment", "PodDisruptionBudget"]
    for variable, text in config["data"].items():
        monkeypatch.setenv(variable, text)
    settings = load_settings()
    assert settings.http.host == "0.0.0.0"  # noqa: S104 - within its pod
    template = deployment["spec"]["template"]
    (relay,) = template["spec"]["containers"]
    assert relay["ports"] == [{"name": "http", "containerPort": settings.http.port}]
    probes = {
        name: relay[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert probes == {
        "startupProbe": {"path": "/startupz", "port": "http"},
        "livenessProbe": {"path": "/livez", "port": "http"},
        "readinessProbe": {"path": "/readyz", "port": "http"},
    }
    assert template["spec"]["terminationGracePeriodSeconds"] > settings.relay.drain_timeout + 10
    labels = template["metadata"]["labels"]
    assert labels.items() >= deployment["spec"]["selector"]["matchLabels"].items()
    assert labels.items() >= budget["spec"]["selector"]["matchLabels"].items()
    assert relay["command"] == ["outbox-bridge", "relay"]
