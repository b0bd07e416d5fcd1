import pytest

from loom_worker.core.values.agent_versions import (
    AgentVersion,
    VersionLabel,
    diff,
    for_new_session,
    free_version,
    seen,
)

RAW = {"agent": {"name": "a", "system_prompt": "Be kind.\nBe brief.\n", "tools": ["add"]}}


def version(name: str, raw: object) -> AgentVersion:
    read = seen("a", name, raw)  # type: ignore[arg-type]  # what a file holds
    return AgentVersion("a", 1, name, read.digest, read.document, created_ms=0)


@pytest.mark.cases(
    ("declared", "taken", "expected"),
    [
        ("1", [], "1"),
        ("1", ["1"], "1-2"),
        ("1", ["1", "1-2"], "1-3"),
        ("2", ["1", "1-2"], "2"),
        ("RC", ["rc"], "RC-2"),
        ("latest", [], "latest-2"),
        ("production", [], "production-2"),
        ("1.0 beta/2", [], "1.0-beta-2"),
        ("", [], "1"),
        ("ü", [], "1"),
        ("9" * 99, [], "9" * 48),
        ("9" * 99, ["9" * 48], "9" * 48 + "-2"),
    ],
)
def test_a_version_is_called_as_declared_or_gets_the_first_free_number(
    declared: str, taken: list[str], expected: str
) -> None:
    assert free_version(declared, taken) == expected


def test_the_order_of_keys_makes_no_version_and_any_value_does() -> None:
    turned = {"agent": dict(reversed(RAW["agent"].items()))}
    assert seen("a", "1", turned).digest == seen("a", "1", RAW).digest
    assert seen("a", "1", {"agent": {**RAW["agent"], "tools": []}}).digest != seen("a", "1", RAW).digest


def test_a_new_session_gets_the_newest_version_unless_labels_say_otherwise() -> None:
    production, canary = VersionLabel("production", "1"), VersionLabel("canary", "3", 0.5)
    lanes = [f"{n:032x}" for n in range(400)]
    assert for_new_session("x", "2", {}) == "2"
    assert for_new_session("x", "2", {"production": production}) == "1"
    chosen = [for_new_session(lane, "2", {"production": production, "canary": canary}) for lane in lanes]
    assert set(chosen) == {"1", "3"}
    assert 140 < chosen.count("3") < 260
    assert chosen == [for_new_session(lane, "2", {"production": production, "canary": canary}) for lane in lanes]
    assert {for_new_session(lane, "2", {"canary": VersionLabel("canary", "3", 0.0)}) for lane in lanes} == {"2"}
    assert {for_new_session(lane, "2", {"canary": VersionLabel("canary", "3", 1.0)}) for lane in lanes} == {"3"}


def test_who_gets_the_canary_grows_with_its_share() -> None:
    few, many = (
        {n for n in range(200) if for_new_session(f"{n}", "2", {"canary": VersionLabel("canary", "3", share)}) == "3"}
        for share in (0.1, 0.3)
    )
    assert few < many


def test_a_difference_shows_the_lines_of_a_prompt_that_differ() -> None:
    other = {"agent": {**RAW["agent"], "system_prompt": "Be kind.\nBe long.\n"}}
    text = diff(version("1", RAW), version("2", other))
    assert text.splitlines()[:2] == ["--- a@1", "+++ a@2"]
    changed = [line for line in text.splitlines() if line[0] in "+-" and line[:3] not in ("---", "+++")]
    assert [line.replace(" ", "") for line in changed] == ["-Bebrief.", "+Belong."]
    assert diff(version("1", RAW), version("2", RAW)) == ""


def test_only_the_document_of_one_version_is_shown_whole() -> None:
    one = version("1", RAW)
    assert "document" not in one.as_json()
    assert one.with_document()["document"] == RAW
