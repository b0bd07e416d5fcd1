import fcntl
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from loom_worker.core.errors import Conflict, LoomError, NotFound, Rejected
from loom_worker.skills.folder import opened
from loom_worker.skills.index import MAX_SKILLS, Skills
from loom_worker.skills.install import install
from loom_worker.skills.package import Package, collected
from loom_worker.skills.storage import ASIDE, STAGED, SkillStorage, locked
from tests.support.at_once import at_once
from tests.unit.skills.parts import put, skill_md

ROOT = Path(__file__).parents[3]
OLD = {"SKILL.md": skill_md("pdf", "Old.").encode(), "old.md": b"old"}
NEW = {"SKILL.md": skill_md("pdf", "New.").encode(), "references/new.md": b"new", "references/deep/er.md": b"new"}


def files(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def put_in(root: Path, content: dict[str, bytes], *, may_replace: bool = False) -> bool:
    with locked(root, "home", is_made=True) as place:
        return place.put("pdf", content, may_replace=may_replace)


def source_of(tmp_path: Path, content: dict[str, bytes]) -> Path:
    for path, text in content.items():
        (tmp_path / "source/pdf" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source/pdf" / path).write_bytes(text)
    return tmp_path / "source/pdf"


def killed(root: Path, source: Path, how: str) -> int:
    """How many processes died while they installed."""
    command = [sys.executable, "-m", "tests.unit.skills.install_and_die", str(root), str(source), how]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    return int(done.stdout)


def test_whoever_is_killed_while_installing_leaves_nothing_or_the_whole(tmp_path: Path) -> None:
    root = tmp_path / "root"
    deaths = killed(root, source_of(tmp_path, NEW), "new")
    states = [files(root / f"w{n}/skills/pdf") for n in range(deaths + 1)]
    assert deaths >= 10
    assert [state for state in states if state not in ({}, NEW)] == []
    assert (states[0], states[-1]) == ({}, NEW)


def test_whoever_is_killed_while_replacing_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for n in range(60):
        with locked(root, f"w{n}", is_made=True) as place:
            place.put("pdf", OLD, may_replace=False)
    deaths = killed(root, source_of(tmp_path, NEW), "replace")
    states = [files(root / f"w{n}/skills/pdf") for n in range(deaths + 1)]
    assert 10 <= deaths < 60
    assert [state for state in states if state not in (OLD, NEW)] == []
    assert (states[0], states[-1]) == (OLD, NEW)
    assert states.count(NEW) > 1  # some died while they cleared the old one away


def test_the_next_change_clears_away_what_was_left(tmp_path: Path) -> None:
    folder = put(tmp_path, "home", STAGED + "dead").parent
    (folder / (STAGED + "link")).symlink_to(tmp_path)
    with locked(tmp_path, "home") as place:
        place.put("pdf", NEW, may_replace=False)
    assert os.listdir(folder) == ["pdf"]


def test_a_skill_that_was_put_aside_comes_back(tmp_path: Path) -> None:
    folder = put(tmp_path, "home", ASIDE + "pdf", skill_md("pdf")).parent
    assert Skills(tmp_path).of("home").skills == ()
    with locked(tmp_path, "home"):
        assert os.listdir(folder) == ["pdf"]


def test_a_skill_that_is_there_is_not_overwritten_by_one_put_aside(tmp_path: Path) -> None:
    folder = put(tmp_path, "home", ASIDE + "pdf").parent
    put(tmp_path, "home", "pdf", skill_md("pdf", "New."))
    with locked(tmp_path, "home"):
        assert os.listdir(folder) == ["pdf"]
    assert Skills(tmp_path).of("home").skills[0].body == "New."


def test_a_taken_name_is_refused_and_replaced_only_on_demand(tmp_path: Path) -> None:
    assert put_in(tmp_path, OLD) is False
    with pytest.raises(Conflict, match="pdf is there already, a folder"):
        put_in(tmp_path, NEW)
    assert files(tmp_path / "home/skills/pdf") == OLD
    assert put_in(tmp_path, NEW, may_replace=True) is True
    assert (files(tmp_path / "home/skills/pdf"), os.listdir(tmp_path / "home/skills")) == (NEW, ["pdf"])


def test_a_plain_file_of_that_name_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "home/skills").mkdir(parents=True)
    (tmp_path / "home/skills/pdf").write_text("mine")
    with pytest.raises(Conflict, match="something else"):
        put_in(tmp_path, NEW, may_replace=True)


def test_replacing_a_link_leaves_what_it_leads_to(tmp_path: Path) -> None:
    source = put(tmp_path, "office", "pdf")
    (tmp_path / "home/skills").mkdir(parents=True)
    (tmp_path / "home/skills/pdf").symlink_to(source)
    assert put_in(tmp_path, NEW, may_replace=True) is True
    assert files(source) == {"SKILL.md": skill_md("pdf").encode()}
    assert files(tmp_path / "home/skills/pdf") == NEW


def test_a_link_within_what_is_replaced_is_not_followed(tmp_path: Path) -> None:
    put_in(tmp_path, OLD)
    (tmp_path / "keep").mkdir()
    (tmp_path / "keep/mine").write_text("mine")
    (tmp_path / "home/skills/pdf/out").symlink_to(tmp_path / "keep")
    put_in(tmp_path, NEW, may_replace=True)
    assert (tmp_path / "keep/mine").read_text() == "mine"


def test_files_are_as_if_made_by_hand_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        put_in(tmp_path, NEW)
    finally:
        os.umask(before)
    folder = tmp_path / "home/skills/pdf"
    modes = {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()}
    assert modes == {0o644}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.rglob("*")) if path.is_dir()} == {0o755}


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(LoomError, match="home/skills: File exists"):
        put_in(tmp_path, {"a": b"x", "a/b": b"y", "z": b"z"} | NEW)
    assert os.listdir(tmp_path / "home/skills") == []


def test_a_full_workspace_takes_no_more_but_replaces(tmp_path: Path) -> None:
    for n in range(MAX_SKILLS - 1):
        (tmp_path / f"home/skills/s{n}").mkdir(parents=True)
    put_in(tmp_path, OLD)
    with locked(tmp_path, "home") as place, pytest.raises(Conflict, match=f"{MAX_SKILLS} skills"):
        place.put("more", NEW, may_replace=True)
    assert put_in(tmp_path, NEW, may_replace=True) is True


def test_of_many_at_once_one_wins_and_nothing_is_mixed(tmp_path: Path) -> None:
    packages = []
    for n in range(8):
        content = {f"f{k}.md": str(n).encode() for k in range(20)} | {"SKILL.md": skill_md("pdf", f"{n}.").encode()}
        packages.append((content, collected(source_of(tmp_path / str(n), content))))

    def installed(each: tuple[dict[str, bytes], Package]) -> dict[str, bytes] | None:
        content, package = each
        try:
            install(package, tmp_path / "root", "home")
        except Conflict:
            return None
        return content

    assert [each for each in at_once(installed, packages) if each is not None] == [
        files(tmp_path / "root/home/skills/pdf")
    ]


def test_a_workspace_is_held_against_all_others_until_the_end(tmp_path: Path) -> None:
    with (
        locked(tmp_path, "home", is_made=True),
        opened(tmp_path, ("home", "skills")) as fd,
        pytest.raises(BlockingIOError),
    ):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with opened(tmp_path, ("home", "skills")) as fd:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_workspace_that_is_a_link_is_not_entered(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "root").mkdir()
    (tmp_path / "root/home").symlink_to(tmp_path / "out")
    with pytest.raises(LoomError, match="a link"):
        put_in(tmp_path / "root", NEW)
    assert not (tmp_path / "out/skills/pdf").exists()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\0b", "x" * 65, "ä"])
def test_what_no_workspace_is_called_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Rejected), locked(tmp_path, name, is_made=True):
        pytest.fail("it was entered")
    assert os.listdir(tmp_path) == []


def test_a_workspace_without_skills_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="home has no skills"), locked(tmp_path, "home"):
        pytest.fail("it was entered")


def test_where_names_cannot_be_swapped_at_once_it_is_done_in_two_steps(tmp_path: Path) -> None:
    put_in(tmp_path, OLD)

    class CannotSwap(SkillStorage):
        def swap(self, first: str, second: str) -> bool:
            return False

    with opened(tmp_path, ("home", "skills")) as fd:
        assert CannotSwap(fd).put("pdf", NEW, may_replace=True) is True
    assert (files(tmp_path / "home/skills/pdf"), os.listdir(tmp_path / "home/skills")) == (NEW, ["pdf"])


def test_if_the_second_step_fails_the_old_skill_is_put_back(tmp_path: Path) -> None:
    put_in(tmp_path, OLD)

    class Loses(SkillStorage):
        def swap(self, first: str, second: str) -> bool:
            shutil.rmtree(first, dir_fd=self.fd)
            return False

    with opened(tmp_path, ("home", "skills")) as fd, pytest.raises(FileNotFoundError):
        Loses(fd).put("pdf", NEW, may_replace=True)
    assert (files(tmp_path / "home/skills/pdf"), os.listdir(tmp_path / "home/skills")) == (OLD, ["pdf"])
