"""docs/metrics.md, the alerts and the dashboard, against the metrics that there are."""

import re
import shutil
import subprocess

import pytest
import yaml

from loom_worker.core.metrics import FAMILIES
from tests.support.metric_names import declared, expressions, family_of, rules, selected, unknown
from tests.unit.docs.pages import ROOT, text

ROW = re.compile(r"^\| `(loom_\w+)` \| (\w+) \|([^|]*)\|", re.MULTILINE)


def test_the_page_has_every_metric_with_its_type_and_labels_and_no_other() -> None:
    rows = ROW.findall(text("docs/metrics.md"))
    told = {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert told == declared()
    assert len(rows) == len(told)


def test_the_values_of_labels_that_the_page_explains_are_those_there_are() -> None:
    page = text("docs/metrics.md")
    for family in FAMILIES.values():
        for label in family.labels:
            if family.name != "loom_large_result_events_total":  # docs/results.md explains those
                row = next(line for line in page.splitlines() if line.startswith(f"| `{family.name}`"))
                missing = [value for value in label.values if f"`{value}`" not in row]
                # What is the same everywhere is explained once.
                assert missing == [] or label.name in ("status", "purpose"), family.name


def test_alerts_and_dashboard_ask_for_metrics_and_labels_that_there_are() -> None:
    wrong = [f"{where}: {what}" for where, expression in expressions() for what in unknown(expression)]
    assert wrong == []
    asked = {family_of(name) for _, expression in expressions() for name in selected(expression)}
    assert len(asked) > 40
    assert FAMILIES.keys() - asked == set(), "not on the dashboard"


def test_every_alert_says_how_bad_it_is_and_where_to_read_on() -> None:
    for rule in rules():
        assert rule["labels"] in ({"severity": "critical"}, {"severity": "warning"}), rule["alert"]
        assert rule["for"]
        assert rule["annotations"]["summary"]
        prefix, _, link = rule["annotations"]["runbook_url"].partition("}}")
        assert prefix == "{{ $externalLabels.loom_docs "  # which prometheus.yml fills
        page, _, anchor = link.partition("#")
        headings = re.findall(r"^#+ (.*)$", text(page), re.MULTILINE)
        assert page == "docs/operations.md"
        assert anchor in {heading.lower().replace(" ", "-") for heading in headings}, rule["alert"]
    assert len({rule["alert"] for rule in rules()}) == len(rules())


def test_every_alert_is_tested_both_when_it_fires_and_when_it_does_not() -> None:
    tests = yaml.safe_load(text("ops/prometheus/alerts.test.yml"))["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    fires = {case["alertname"] for case in cases if case["exp_alerts"]}
    quiet = {case["alertname"] for case in cases if not case["exp_alerts"]}
    assert fires == quiet == {rule["alert"] for rule in rules()}


@pytest.mark.parametrize(
    "arguments",
    [("check", "config", "prometheus.yml"), ("check", "rules", "alerts.yml"), ("test", "rules", "alerts.test.yml")],
)
def test_promtool_finds_nothing_wrong(arguments: tuple[str, ...]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool: install the Debian package prometheus, or Prometheus' own archive")
    folder = ROOT / "ops" / "prometheus"
    done = subprocess.run([promtool, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout
