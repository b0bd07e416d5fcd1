import json

import pytest

from bench.report import HEAD, Report


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_a_figure_is_a_json_line_at_once_and_a_row_with_its_command_in_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = Report(is_quick=True)
    report.begin("cpu")
    report.add("CPU of a turn", 10.4567, "ms", model="scripted", ratio=0.987, samples=7)
    (line,) = lines(capsys)
    assert json.loads(line) == {
        "figure": "CPU of a turn",
        "value": 10.457,
        "unit": "ms",
        "only": "cpu",
        "model": "scripted",
        "ratio_to_noop_celery": 0.99,
        "samples": 7,
    }
    report.table()
    command = "`python -m bench --only cpu --quick`"
    assert lines(capsys)[1:] == [*HEAD.splitlines(), f"| CPU of a turn | 10.5 ms | 0.99 | scripted | {command} |"]


def test_percentiles_are_figures_of_their_own_and_tell_how_many_samples_they_are_of(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Report(is_quick=False).shares("reads", [1.0, 2.0, 3.0, 4.0], "ms", shares=(50, 99))
    told = [json.loads(line) for line in lines(capsys)]
    assert [(line["figure"], line["value"], line["samples"]) for line in told] == [
        ("reads, p50", 3.0, 4),
        ("reads, p99", 4.0, 4),
    ]
