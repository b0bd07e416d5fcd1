import os
from pathlib import Path

import pytest

from loom_worker.skills.package import MAX_FILE_BYTES, Unsafe, collected, digest_of
from tests.unit.skills.parts import put


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return put(tmp_path, "home", "pdf", references__a="a", scripts__deep="b")


def test_a_folder_gives_its_files_and_a_digest_over_them(folder: Path) -> None:
    package = collected(folder)
    assert (sorted(package.files), package.folder) == (["SKILL.md", "references/a.md", "scripts/deep.md"], "pdf")
    assert package.files["references/a.md"] == b"a"
    assert package.sha256 == digest_of(package.files)


def test_the_folder_itself_may_be_named_by_a_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "pdf").symlink_to(folder)
    assert collected(tmp_path / "pdf").files == collected(folder).files


def test_the_only_folder_in_a_folder_is_the_skill(folder: Path) -> None:
    assert collected(folder.parent).folder == "pdf"


@pytest.mark.parametrize("target", ["/etc/passwd", "SKILL.md", "references", "..", "nowhere"])
def test_a_link_is_refused_by_its_name(folder: Path, target: str) -> None:
    (folder / "references/leak").symlink_to(target if target[0] == "/" else folder / target)
    with pytest.raises(Unsafe, match="'references/leak': a link"):
        collected(folder)


def test_a_hard_link_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("key")
    os.link(tmp_path / "secret", folder / "a.md")
    with pytest.raises(Unsafe, match=r"'a\.md': no file of its own"):
        collected(folder)


@pytest.mark.timeout(5)
def test_a_pipe_is_refused_and_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(Unsafe, match="'pipe': no file of its own"):
        collected(folder)


def test_hidden_files_and_folders_are_left_out_and_told(folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / ".git/config").symlink_to("/etc/passwd")
    (folder / "references/.env").write_text("key")
    package = collected(folder)
    assert len(package.files) == 3
    assert package.skipped == (".git", "references/.env")


def test_a_large_file_is_refused_by_its_size_alone(folder: Path) -> None:
    with (folder / "large").open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(Unsafe, match=f"'large': larger than {MAX_FILE_BYTES} bytes"):
        collected(folder)


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unsafe, match="No such file"):
        collected(tmp_path / "gone")
