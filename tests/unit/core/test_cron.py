from datetime import datetime
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.cron import BadPlan, plan_of

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"


def ms(moment: str) -> int:
    return int(datetime.fromisoformat(moment).timestamp() * 1000)


@pytest.mark.parametrize(
    ("cron", "zone", "after", "due"),
    [
        pytest.param("0 9 * * 1", "UTC", "2026-11-26T00:00Z", ["2026-11-30 09:00 +0000"], id="monday"),
        pytest.param("@daily", "UTC", "2026-12-31T00:00Z", ["2027-01-01 00:00 +0000"], id="shorthand, new year"),
        pytest.param("0 0 31 * *", "UTC", "2026-01-31T00:00Z", ["2026-03-31 00:00 +0000"], id="a month without a 31st"),
        pytest.param("0 0 L * *", "UTC", "2026-02-01T00:00Z", ["2026-02-28 00:00 +0000"], id="the month's last day"),
        pytest.param(
            "0 0 29 2 *", "UTC", "2026-01-01T00:00Z", ["2028-02-29 00:00 +0000", "2032-02-29 00:00 +0000"], id="leap"
        ),
        pytest.param(
            "30 2 * * *",
            BERLIN,
            "2026-03-28T12:00Z",
            ["2026-03-29 03:00 +0200", "2026-03-30 02:30 +0200"],
            id="a time that spring leaves out is due right after the gap",
        ),
        pytest.param(
            "15,45 2 * * *",
            BERLIN,
            "2026-03-28T12:00Z",
            ["2026-03-29 03:00 +0200", "2026-03-30 02:15 +0200"],
            id="two times in the gap are one",
        ),
        pytest.param(
            "0 2,3 * * *",
            BERLIN,
            "2026-03-28T12:00Z",
            ["2026-03-29 03:00 +0200", "2026-03-30 02:00 +0200"],
            id="the gap's time and the one after it are one",
        ),
        pytest.param(
            "30 2 * * *",
            BERLIN,
            "2026-10-24T12:00Z",
            ["2026-10-25 02:30 +0200", "2026-10-26 02:30 +0100"],
            id="a time that autumn has twice is due once",
        ),
        pytest.param(
            "30 2 * * *", BERLIN, "2026-10-25T01:10Z", ["2026-10-26 02:30 +0100"], id="not when it comes again"
        ),
        pytest.param(
            "30 2 * * *",
            NEW_YORK,
            "2026-03-07T12:00Z",
            ["2026-03-08 03:00 -0400", "2026-03-09 02:30 -0400"],
            id="spring in New York",
        ),
        pytest.param(
            "30 1 * * *",
            NEW_YORK,
            "2026-10-31T12:00Z",
            ["2026-11-01 01:30 -0400", "2026-11-02 01:30 -0500"],
            id="autumn in New York",
        ),
        pytest.param(
            "*/30 * * * *",
            BERLIN,
            "2026-10-25T00:15Z",
            ["2026-10-25 02:30 +0200", "2026-10-25 02:00 +0100", "2026-10-25 02:30 +0100"],
            id="every half hour goes by elapsed time",
        ),
    ],
)
def test_a_plan_is_due_when_its_zones_clocks_say_so(cron: str, zone: str, after: str, due: list[str]) -> None:
    plan = plan_of(cron, zone)
    assert [plan.local(each) for each in islice(plan.after(ms(after)), len(due))] == due


@pytest.mark.cases(
    ("cron", "zone", "field", "text"),
    [
        ("0 9 * *", "UTC", "cron", "five fields"),
        ("0 0 9 * * *", "UTC", "cron", "five fields"),
        ("61 9 * * *", "UTC", "cron", "is no cron expression"),
        ("0 0 30 2 *", "UTC", "cron", "30 2"),
        ("@reboot", "UTC", "cron", "unknown shorthand"),
        ("0 9 * * *", "Europe/Berln", "timezone", "did you mean Europe/Berlin?"),
        ("0 9 * * *", "../etc/passwd", "timezone", "unknown time zone"),
        ("0 9 * * *", "", "timezone", "unknown time zone"),
    ],
)
def test_a_plan_that_cannot_be_used_says_which_field_is_wrong(cron: str, zone: str, field: str, text: str) -> None:
    with pytest.raises(BadPlan) as refused:
        plan_of(cron, zone)
    assert refused.value.field == field
    assert text in refused.value.reason


@given(
    cron=st.sampled_from(["30 2 * * *", "*/17 * * * *", "0 1-3 * * *", "15,45 2 * * 0", "*/10 2 * * *", "@hourly"]),
    zone=st.sampled_from([BERLIN, NEW_YORK, "Australia/Lord_Howe", "UTC"]),
    after_ms=st.integers(ms("2026-01-01T00:00Z"), ms("2027-01-01T00:00Z")),
)
def test_due_times_rise_and_looking_from_any_of_them_leads_to_the_next(cron: str, zone: str, after_ms: int) -> None:
    plan = plan_of(cron, zone)
    times = list(islice(plan.after(after_ms), 40))
    assert times[0] > after_ms
    for before, following in pairwise(times):
        assert before < following
        assert plan.next_after(before) == following
        assert plan.next_after(following - 1) == following
