import re
from pathlib import Path

import pytest

from loom_worker.core.yaml_files import MAX_BYTES
from loom_worker.skills import files, install, prompt, spec
from loom_worker.skills.index import MAX_SKILLS, Skills
from tests.unit.docs.pages import block_after, text
from tests.unit.skills.parts import put

PAGE = "docs/skills.md"


def test_the_example_loads_and_is_chosen_as_the_page_says(tmp_path: Path) -> None:
    folder = put(tmp_path, "homelab", "infra-ops", block_after(PAGE, "the example"))
    assert spec.notes(folder / "SKILL.md") == ()
    skill_set = Skills(tmp_path).of("homelab")
    (skill,) = skill_set.skills
    assert (skill.trigger, skill.keywords) == ("keyword", ("server", "deploy", "kubernetes", "disk full"))
    assert skill.metadata["version"] == "1.10"
    assert prompt.chosen(skill_set, "Why is the disk full?", most=3) == ((skill, "keyword"),)
    assert prompt.chosen(skill_set, "use skill: infra-ops", most=3) == ((skill, "manual"),)
    assert prompt.missing_tools(skill, ["execute_sql"]) == ("Bash",)


def test_the_example_can_be_copied_and_linked_as_the_page_does(tmp_path: Path) -> None:
    put(tmp_path, "homelab", "infra-ops", block_after(PAGE, "the example"))
    install.copy(tmp_path, "infra-ops", source="homelab", target="office")
    install.link(tmp_path, "infra-ops", source="homelab", target="lab")
    assert [len(Skills(tmp_path).of(each).skills) for each in ("office", "lab")] == [1, 1]


def test_no_block_installs_the_same_skill_twice() -> None:
    blocks = re.findall("```console\n(.*?)```", text(PAGE), re.DOTALL)
    assert [block.count("skill install") for block in blocks] == [1, 1, 1]


@pytest.mark.parametrize("page", [PAGE, "docs/commands.md"])
def test_wherever_changes_are_promised_what_sessions_keep_is_said(page: str) -> None:
    paragraphs = [" ".join(each.split()) for each in text(page).split("\n\n")]
    promised = [each for each in paragraphs if "the next turn on" in each and "skill" in each]
    assert promised != []
    assert [each for each in promised if "PATCH /v1/sessions/{s}" not in each or "as first sent" not in each] == []


@pytest.mark.cases("field", spec.FIELDS)
def test_every_field_is_on_the_page(field: str) -> None:
    assert f"| `{field}` |" in text(PAGE)


def test_the_figures_on_the_page_are_those_of_the_code() -> None:
    page = " ".join(text(PAGE).split())
    told = [
        f"at most {MAX_SKILLS} skills",
        f"at most {MAX_BYTES // 1024} KB",
        f"1 to {spec.MAX_NAME} lower-case",
        f"1 to {spec.MAX_DESCRIPTION:,} characters",
        f"at most {spec.MAX_COMPATIBILITY} characters",
        f"last {prompt.MAX_CHARS // 2:,} characters",
        f"at most {files.MAX_FILE_BYTES // 1024**2} MiB, in pages of {files.PAGE_BYTES // 1024} KiB",
        f"`{prompt.READ_TOOL}(skill, path, offset_lines, limit_lines)`",
    ]
    assert [phrase for phrase in told if phrase not in page] == []
