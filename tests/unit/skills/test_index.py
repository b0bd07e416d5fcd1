import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from loom_worker.skills.index import MAX_SKILLS, Skills, is_workspace
from tests.unit.skills.parts import put, skill_md


def names(skills: Skills, workspace: str = "home") -> list[str]:
    return [skill.name for skill in skills.of(workspace).skills]


def link(root: Path, workspace: str, name: str, target: Path | str) -> Path:
    place = root / workspace / "skills" / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)
    return place


def problem(skills: Skills, workspace: str = "home") -> str:
    (found,) = skills.of(workspace).problems
    return found


@pytest.mark.cases("name", ["a", "default", "A.b_c-1", "x" * 64, "..."])
def test_a_workspace_may_have_such_a_name(name: str) -> None:
    assert is_workspace(name)


@pytest.mark.cases("name", ["", ".", "..", "a/b", "../a", "a b", "é", "x" * 65, "a\0", "a\n", "/etc"])
def test_no_other_name_reaches_the_disk(tmp_path: Path, name: str) -> None:
    put(tmp_path, "a", "pdf")
    skill_set = Skills(tmp_path / "a").of(name)
    assert (skill_set.skills, len(skill_set.problems)) == ((), 1)


def test_a_workspace_without_a_folder_has_an_empty_shelf(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "none"):
        skill_set = Skills(root).of("home")
        assert (skill_set.skills, skill_set.problems) == ((), ())
        assert not Skills(root).any()
        assert Skills(root).workspaces() == ()


def test_skills_come_by_name_and_what_is_no_skill_folder_is_passed_over(tmp_path: Path) -> None:
    for name in ("pdf", "audit", "mail"):
        put(tmp_path, "home", name)
    (tmp_path / "home/skills/README.md").write_text("x")
    (tmp_path / "home/skills/.git").mkdir()
    skills = Skills(tmp_path)
    assert names(skills) == ["audit", "mail", "pdf"]
    assert skills.of("home").problems == ()
    assert (skills.any(), skills.workspaces()) == (True, ("home",))


def test_two_workspaces_never_see_each_others_skills(tmp_path: Path) -> None:
    put(tmp_path, "home", "pdf")
    put(tmp_path, "office", "mail")
    skills = Skills(tmp_path)
    assert (names(skills, "home"), names(skills, "office"), names(skills, "Home")) == (["pdf"], ["mail"], [])


def test_one_bad_skill_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    put(tmp_path, "home", "pdf")
    put(tmp_path, "home", "broken", "---\nname: broken\n---\n")
    (tmp_path / "home/skills/empty").mkdir()
    os.mkfifo(put(tmp_path, "home", "pipe") / "pipe")
    (tmp_path / "home/skills/pipe/SKILL.md").unlink()
    (tmp_path / "home/skills/pipe/pipe").rename(tmp_path / "home/skills/pipe/SKILL.md")
    (put(tmp_path, "home", "binary") / "SKILL.md").write_bytes(b"\xff\xfe")
    skills = Skills(tmp_path)
    assert names(skills) == ["pdf"]
    assert skills.of("home").problems == (
        "home/skills/binary/SKILL.md: not UTF-8 (byte 0)",
        "home/skills/broken/SKILL.md:2: description: is missing",
        "home/skills/empty/SKILL.md: No such file or directory",
        "home/skills/pipe/SKILL.md: no regular file",
    )


def test_a_folder_called_as_its_skill_goes_before_another_that_says_it_is_the_same(tmp_path: Path) -> None:
    put(tmp_path, "home", "a", skill_md("pdf", "Another."))
    put(tmp_path, "home", "pdf", skill_md("pdf", "The one."))
    skill_set = Skills(tmp_path).of("home")
    assert [skill.body for skill in skill_set.skills] == ["The one."]
    assert skill_set.problems == ("home/skills/a: there already is a skill pdf",)


def test_what_a_skill_is_warned_of_is_told_with_its_path(tmp_path: Path) -> None:
    put(tmp_path, "home", "a", skill_md("pdf"))
    skill_set = Skills(tmp_path).of("home")
    assert [skill.name for skill in skill_set.skills] == ["pdf"]
    assert skill_set.problems == ()
    assert skill_set.warnings == ("home/skills/a/SKILL.md:2: name: 'pdf' is not the name of its folder, 'a'",)


def test_changes_are_seen_at_once(tmp_path: Path) -> None:
    skills = Skills(tmp_path)
    folder = put(tmp_path, "home", "pdf")
    assert names(skills) == ["pdf"]
    for body in ("One.", "Two.", "Six."):  # of one length, within one tick of the clock
        (folder / "SKILL.md").write_text(skill_md("pdf", body))
        assert skills.of("home").skills[0].body == body
    (folder / "references").mkdir()
    (folder / "references/a.md").write_text("a")
    assert skills.of("home").skills[0].files == ("references/a.md",)
    (folder / "SKILL.md").write_text("broken")
    assert (names(skills), len(skills.of("home").problems)) == ([], 1)
    (folder / "SKILL.md").write_text(skill_md("pdf"))
    assert (names(skills), skills.of("home").problems) == (["pdf"], ())
    folder.rename(tmp_path / "gone")
    assert names(skills) == []


def test_what_has_not_changed_is_not_read_again(tmp_path: Path) -> None:
    put(tmp_path, "home", "pdf", references__a="x")
    skills = Skills(tmp_path, now_ns=lambda: 2**62)  # as if it had been written long ago
    first = skills.of("home").skills[0]
    assert skills.of("home").skills[0] is first
    (tmp_path / "home/skills/pdf/references/b.md").write_text("y")
    again = skills.of("home").skills[0]
    assert again.files == ("references/a.md", "references/b.md")
    assert skills.of("home").skills[0] is again


def test_links_hidden_files_and_odd_names_are_not_listed(tmp_path: Path) -> None:
    folder = put(tmp_path, "home", "pdf", references__a="x", scripts__run="y")
    (folder / ".env").write_text("secret")
    (folder / "a\nb").write_text("x")
    (folder / "passwd").symlink_to("/etc/passwd")
    (folder / "up").symlink_to("..")
    os.mkfifo(folder / "pipe")
    assert Skills(tmp_path).of("home").skills[0].files == ("references/a.md", "scripts/run.md")


def test_a_skill_for_one_workspace_is_in_no_other(tmp_path: Path) -> None:
    text = skill_md("pdf", metadata="gateway:workspace: home")
    source = put(tmp_path, "home", "pdf", text)
    link(tmp_path, "office", "pdf", source)
    skills = Skills(tmp_path)
    assert (names(skills, "home"), names(skills, "office")) == (["pdf"], [])
    assert problem(skills, "office").endswith("gateway:workspace allows it in 'home' alone")


def test_a_linked_skill_follows_the_edits_of_its_source(tmp_path: Path) -> None:
    source = put(tmp_path, "office", "pdf", skill_md("pdf", "Old."))
    link(tmp_path, "home", "pdf", "../../office/skills/pdf")
    skills = Skills(tmp_path)
    (skill,) = skills.of("home").skills
    assert (skill.body, skill.is_linked, skill.folder) == ("Old.", True, source)
    assert not skills.of("office").skills[0].is_linked
    (source / "SKILL.md").write_text(skill_md("pdf", "New."))
    assert skills.of("home").skills[0].body == "New."
    assert skills.read_file(skill, "SKILL.md", most_bytes=1000).endswith(b"New.\n")


def test_a_link_to_a_link_leads_to_the_source(tmp_path: Path) -> None:
    source = put(tmp_path, "a", "pdf")
    link(tmp_path, "home", "pdf", link(tmp_path, "b", "pdf", source))
    assert Skills(tmp_path).of("home").skills[0].folder == source


def test_a_link_that_is_turned_elsewhere_is_followed_there(tmp_path: Path) -> None:
    place = link(tmp_path, "home", "pdf", put(tmp_path, "a", "pdf", skill_md("pdf", "A.")))
    skills = Skills(tmp_path)
    assert skills.of("home").skills[0].body == "A."
    place.unlink()
    link(tmp_path, "home", "pdf", put(tmp_path, "b", "pdf", skill_md("pdf", "B.")))
    assert skills.of("home").skills[0].body == "B."


@pytest.mark.parametrize("kind", ["gone", "loop", "outside", "file", "workspace", "skills", "within", "other-name"])
def test_a_link_that_leads_to_no_skill_is_a_problem_of_that_one_alone(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "root"
    source = put(root, "office", "pdf", references__deep="x")
    put(tmp_path, "outside", "pdf")
    put(root, "home", "mail")
    target, reason = {
        "gone": (root / "office/skills/none", "what it links to is gone"),
        "loop": (root / "home/skills/pdf", "the link leads nowhere"),
        "outside": (tmp_path / "outside/skills/pdf", "out of the workspaces' folder"),
        "file": (source / "SKILL.md", "to no skill of a workspace"),
        "workspace": (root / "office", "to no skill of a workspace"),
        "skills": (root / "office/skills", "to no skill of a workspace"),
        "within": (source / "references", "to no skill of a workspace"),
        "other-name": (put(root, "office", "word"), "a link to word must have its name"),
    }[kind]
    link(root, "home", "pdf", target)
    skills = Skills(root)
    assert names(skills) == ["mail"]
    assert problem(skills).startswith("home/skills/pdf")
    assert reason in problem(skills)


def test_a_source_that_vanishes_takes_only_its_link_along(tmp_path: Path) -> None:
    source = put(tmp_path, "office", "pdf")
    put(tmp_path, "home", "mail")
    link(tmp_path, "home", "pdf", source)
    skills = Skills(tmp_path)
    assert names(skills) == ["mail", "pdf"]
    source.rename(source.with_name("moved"))
    assert names(skills) == ["mail"]
    assert problem(skills) == "home/skills/pdf: what it links to is gone"


@pytest.mark.parametrize("place", ["home", "home/skills"])
def test_a_workspace_that_is_a_link_is_not_followed(tmp_path: Path, place: str) -> None:
    root = tmp_path / "root"
    put(tmp_path / "elsewhere", "home", "pdf")
    (root / place).parent.mkdir(parents=True)
    (root / place).symlink_to(tmp_path / "elsewhere" / place)
    skills = Skills(root)
    assert (names(skills), problem(skills)) == ([], "home/skills: a link, which is not followed")


def test_a_root_that_is_a_link_is_followed(tmp_path: Path) -> None:
    put(tmp_path / "real", "office", "pdf")
    link(tmp_path / "real", "home", "pdf", "../../office/skills/pdf")
    (tmp_path / "root").symlink_to("real")
    skills = Skills(tmp_path / "root")
    (skill,) = skills.of("home").skills
    assert skills.read_file(skill, "SKILL.md", most_bytes=1000)


def test_more_folders_than_are_read_are_a_problem_and_not_the_end(tmp_path: Path) -> None:
    for n in range(MAX_SKILLS + 2):
        put(tmp_path, "home", f"s{n:03}")
    skills = Skills(tmp_path)
    assert len(names(skills)) == MAX_SKILLS
    assert problem(skills) == f"home/skills: {MAX_SKILLS + 2} folders, only the first {MAX_SKILLS} are read"


def test_many_threads_see_whole_skills_while_they_are_written(tmp_path: Path) -> None:
    skills, stop = Skills(tmp_path), threading.Event()
    bodies = [letter * 5000 for letter in "abc"]
    folder = put(tmp_path, "home", "pdf", skill_md("pdf", bodies[0]))

    def write() -> None:
        for n in range(200):
            (folder / "new").write_text(skill_md("pdf", bodies[n % 3]))
            (folder / "new").rename(folder / "SKILL.md")
        stop.set()

    def look(_: int) -> int:
        seen = 0
        while not stop.is_set():
            (skill,) = skills.of("home").skills
            assert skill.body in bodies
            assert skills.of("office").skills == ()
            seen += 1
        return seen

    with ThreadPoolExecutor(5) as pool:
        lookers = [pool.submit(look, n) for n in range(4)]
        pool.submit(write).result(60)
        assert sum(looker.result(60) for looker in lookers) > 0
    assert skills.of("home").skills[0].body == bodies[199 % 3]
