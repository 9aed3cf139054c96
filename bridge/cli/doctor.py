"""`outbox-bridge doctor`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from bridge.cli import exit_codes
from bridge.cli.options import (
    ConfigOption,
    DatabaseUrlOption,
    JsonOption,
    SchemaOption,
    settings_from,
)
from bridge.cli.output import Output

if TYPE_CHECKING:
    from bridge.doctor import Finding

_RUNBOOK = "docs/runbook.md says of each verdict what it means and what to do."


def doctor(
    checks: Annotated[
        list[str] | None, typer.Argument(metavar="[CHECK]...", help="Make these checks only.")
    ] = None,
    *,
    skip: Annotated[
        list[str] | None,
        typer.Option("--skip", metavar="CHECK", help="Leave this check out; may be repeated."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, max=600, help="Limit for each answer.")
    ] = 10.0,
    config: ConfigOption = None,
    database_url: DatabaseUrlOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Look for what is wrong or soon will be, in database and Kafka; changes nothing.

    Each check has a verdict (ok, problem, unknown), its evidence and the next step; docs/runbook.md
    has a section on each. Use the settings of the relay, and a database user that may read
    (outbox_reader; members of pg_read_all_stats see more). Exits with 0 where all is well, 1 where
    there is a problem, 3 where there is none but something could not be checked.

    Examples:
      outbox-bridge doctor
      outbox-bridge doctor queue relays --json
      outbox-bridge doctor --skip wake-up
    """
    # Only after the options are checked: `--help` must not wait for Kafka's client.
    from bridge.doctor import Verdict, examine  # noqa: PLC0415 - see above

    settings = settings_from(config, database_url=database_url, schema=schema)
    findings = examine(settings, only=checks or (), skip=skip or (), timeout=timeout)
    verdicts = Counter(finding.verdict for finding in findings)
    output = Output(as_json=json)
    if json:
        output.json({"verdicts": {one: verdicts[one] for one in Verdict}, "findings": findings})
    else:
        _tell(output, findings)
        output.line()
        output.line(", ".join(f"{verdicts[one]} {one}" for one in Verdict))
    if verdicts[Verdict.PROBLEM]:
        raise typer.Exit(exit_codes.FAILURE)
    if verdicts[Verdict.UNKNOWN]:
        raise typer.Exit(exit_codes.PRECONDITION)


def _tell(output: Output, findings: list[Finding]) -> None:
    output.table(
        ["check", "verdict", "evidence"],
        [[one.check, one.verdict.value, one.evidence] for one in findings],
    )
    steps = [one for one in findings if one.next_step]
    if not steps:
        return
    output.line()
    output.table(["check", "next step"], [[one.check, one.next_step] for one in steps])
    output.note(_RUNBOOK)
