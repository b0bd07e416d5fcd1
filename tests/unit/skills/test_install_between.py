import os
from pathlib import Path

import pytest

from loom_worker.core.errors import Conflict, LoomError, NotFound, Rejected
from loom_worker.core.values.skills import Skill
from loom_worker.skills.index import Skills
from loom_worker.skills.install import copy, link, linking, owner, remove
from tests.unit.skills.parts import put, skill_md


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace home with the skill pdf."""
    put(tmp_path / "root", "home", "pdf", references__a="a")
    return tmp_path / "root"


def found(root: Path, workspace: str) -> Skill:
    skill_set = Skills(root).of(workspace)
    assert skill_set.problems == ()
    (skill,) = skill_set.skills
    return skill


def edit(root: Path, workspace: str, body: str) -> None:
    (root / workspace / "skills/pdf/SKILL.md").write_text(skill_md("pdf", body))


def test_a_copy_has_files_of_its_own(root: Path) -> None:
    assert copy(root, "pdf", source="home", target="office").skill == found(root, "office")
    edit(root, "home", "Edited.")
    assert (found(root, "office").body, found(root, "office").is_linked) == ("Do it.", False)
    assert found(root, "office").files == ("references/a.md",)


def test_a_copy_of_a_linked_skill_is_of_its_source(root: Path) -> None:
    link(root, "pdf", source="home", target="office")
    copy(root, "pdf", source="office", target="lab")
    remove(root, "pdf", workspace="office")
    remove(root, "pdf", workspace="home")
    assert (found(root, "lab").is_linked, found(root, "lab").files) == (False, ("references/a.md",))


def test_a_copy_replaces_only_by_force(root: Path) -> None:
    put(root, "office", "pdf", skill_md("pdf", "Ours."))
    with pytest.raises(Conflict, match="there already"):
        copy(root, "pdf", source="home", target="office")
    assert found(root, "office").body == "Ours."
    assert copy(root, "pdf", source="home", target="office", may_replace=True).has_replaced is True
    assert found(root, "office").body == "Do it."


def test_copying_a_skill_onto_itself_loses_nothing(root: Path) -> None:
    assert copy(root, "pdf", source="home", target="home", may_replace=True).has_replaced is True
    assert found(root, "home").files == ("references/a.md",)


def test_a_skill_with_a_link_in_it_is_not_copied(root: Path) -> None:
    (root / "home/skills/pdf/leak").symlink_to("/etc/passwd")
    with pytest.raises(Rejected, match="pdf: 'leak': a link"):
        copy(root, "pdf", source="home", target="office")
    assert not (root / "office").exists()


def test_edits_of_the_source_show_in_a_linked_skill(root: Path) -> None:
    assert owner(link(root, "pdf", source="home", target="office")) == "home"
    edit(root, "home", "Edited.")
    assert (found(root, "office").body, found(root, "office").is_linked) == ("Edited.", True)


def test_a_link_is_relative_so_the_workspaces_can_be_moved(root: Path, tmp_path: Path) -> None:
    link(root, "pdf", source="home", target="office")
    assert os.readlink(root / "office/skills/pdf") == "../../home/skills/pdf"
    root.rename(tmp_path / "moved")
    assert found(tmp_path / "moved", "office").name == "pdf"


def test_linking_a_link_links_its_source(root: Path) -> None:
    link(root, "pdf", source="home", target="office")
    link(root, "pdf", source="office", target="lab")
    remove(root, "pdf", workspace="office")
    assert owner(found(root, "lab")) == "home"


@pytest.mark.parametrize("target", ["home", "office"])
def test_a_link_replaces_nothing(root: Path, target: str) -> None:
    put(root, "office", "pdf", skill_md("pdf", "Ours."))
    with pytest.raises(Conflict, match=f"{target}/skills: pdf is there already, a folder; remove it first"):
        link(root, "pdf", source="home", target=target)
    assert found(root, "office").body == "Ours."


def test_a_skill_of_one_workspace_goes_to_no_other(root: Path) -> None:
    put(root, "home", "pdf", skill_md("pdf", metadata="gateway:workspace: home"))
    for share in (copy, link):
        with pytest.raises(Rejected, match="allows it in 'home' alone"):
            share(root, "pdf", source="home", target="office")
    assert not (root / "office/skills/pdf").exists()


def test_what_is_not_there_is_neither_copied_nor_linked_nor_removed(root: Path) -> None:
    for share in (copy, link):
        with pytest.raises(NotFound, match="the workspace home has no skill docx"):
            share(root, "docx", source="home", target="office")
        with pytest.raises(NotFound, match="the workspace lab has no skill pdf"):
            share(root, "pdf", source="lab", target="office")
    with pytest.raises(NotFound, match="the workspace home has no skill docx"):
        remove(root, "docx", workspace="home")
    assert os.listdir(root) == ["home"]


def test_a_broken_skill_is_not_shared_and_the_reason_is_told(root: Path) -> None:
    (root / "home/skills/pdf/SKILL.md").write_text("broken")
    for share in (copy, link):
        with pytest.raises(NotFound, match=r"home/skills/pdf/SKILL\.md:1: the frontmatter is missing"):
            share(root, "pdf", source="home", target="office")


def test_a_broken_skill_can_be_removed(root: Path) -> None:
    (root / "home/skills/pdf/SKILL.md").write_text("broken")
    assert remove(root, "pdf", workspace="home") == ()
    assert os.listdir(root / "home/skills") == []


def test_removing_a_linked_skill_leaves_its_source(root: Path) -> None:
    link(root, "pdf", source="home", target="office")
    assert remove(root, "pdf", workspace="office") == ()
    assert os.listdir(root / "office/skills") == []
    assert found(root, "home").files == ("references/a.md",)


def test_removing_follows_no_link_in_the_skill(root: Path, tmp_path: Path) -> None:
    (tmp_path / "keep").mkdir()
    (tmp_path / "keep/mine").write_text("mine")
    (root / "home/skills/pdf/out").symlink_to(tmp_path / "keep")
    remove(root, "pdf", workspace="home")
    assert (tmp_path / "keep/mine").read_text() == "mine"


def test_a_skill_that_others_link_to_is_removed_only_by_force(root: Path) -> None:
    for target in ("office", "lab"):
        link(root, "pdf", source="home", target=target)
    assert linking(root, "home", "pdf") == ("lab", "office")
    with pytest.raises(Conflict, match="home/skills/pdf is linked by lab, office; --force removes it all the same"):
        remove(root, "pdf", workspace="home")
    assert found(root, "office").name == "pdf"
    assert remove(root, "pdf", workspace="home", is_forced=True) == ("lab", "office")
    assert Skills(root).of("office").problems == ("office/skills/pdf: what it links to is gone",)


def test_a_dangling_link_can_be_removed(root: Path) -> None:
    link(root, "pdf", source="home", target="office")
    remove(root, "pdf", workspace="home", is_forced=True)
    assert remove(root, "pdf", workspace="office") == ()
    assert os.listdir(root / "office/skills") == []


@pytest.mark.parametrize("name", ["", ".", "..", "../../home", "/etc", ".staged-x", "a\0b"])
def test_a_name_that_leads_elsewhere_is_refused(root: Path, name: str) -> None:
    for act in (
        lambda: remove(root, name, workspace="home", is_forced=True),
        lambda: copy(root, name, source="home", target="office"),
        lambda: link(root, name, source="home", target="office"),
    ):
        with pytest.raises(Rejected, match="no name of a skill"):
            act()
    assert found(root, "home").name == "pdf"


@pytest.mark.parametrize("workspace", ["..", "a/b", ""])
def test_a_workspace_that_leads_elsewhere_is_refused(root: Path, workspace: str) -> None:
    for share in (copy, link):
        with pytest.raises(Rejected, match="a workspace has"):
            share(root, "pdf", source="home", target=workspace)
        with pytest.raises(LoomError):
            share(root, "pdf", source=workspace, target="office")
    with pytest.raises(Rejected, match="a workspace has"):
        remove(root, "pdf", workspace=workspace)


def test_a_skill_in_a_folder_of_another_name_is_copied_linked_and_removed_by_its_own(root: Path) -> None:
    (root / "home/skills/pdf").rename(root / "home/skills/other")
    assert copy(root, "pdf", source="home", target="office").skill.folder == root / "office/skills/pdf"
    link(root, "pdf", source="home", target="lab")
    assert [(skill.name, skill.is_linked) for skill in Skills(root).of("lab").skills] == [("pdf", True)]
    remove(root, "pdf", workspace="lab")
    assert Skills(root).of("lab").skills == ()
    remove(root, "pdf", workspace="home")
    assert not (root / "home/skills/other").exists()
