import hashlib
import os
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.errors import BadFile, Conflict, LoomError, NotFound, Rejected
from loom_worker.skills.index import Skills
from loom_worker.skills.install import Installed, check_sha256, checked, install, package_from
from loom_worker.skills.package import Unsafe, digest_of, unpack
from loom_worker.skills.spec import parse
from tests.support.webhook_receiver import Answer, WebhookReceiver
from tests.unit.skills.archives import GOOD, MAKERS, Entry, zipped
from tests.unit.skills.parts import put, skill_md

DATA = Path(os.environ.get("LOOM_TEST_DATA", "/nowhere")) / "skills"
with_data = pytest.mark.skipif(not DATA.is_dir(), reason="LOOM_TEST_DATA names no folder with skills")


def installed(source: Path | str, root: Path, name: str | None = None) -> Installed:
    return install(package_from(str(source)), root, "home", name=name)


@pytest.mark.parametrize("kind", MAKERS)
def test_an_archive_is_installed_and_is_a_skill_at_once(tmp_path: Path, kind: str) -> None:
    (tmp_path / f"x.{kind}").write_bytes(MAKERS[kind]())
    done = installed(tmp_path / f"x.{kind}", tmp_path / "root")
    (skill,) = Skills(tmp_path / "root").of("home").skills
    assert skill == done.skill
    assert skill.files == ("references/a.md", "scripts/run.sh")
    assert (skill.folder / "scripts/run.sh").stat().st_mode & 0o7111 == 0
    assert done.package.size_bytes == sum(map(len, GOOD.values()))


def test_a_folder_is_installed_with_a_digest_that_anyone_can_compute_again(tmp_path: Path) -> None:
    done = installed(put(tmp_path, "elsewhere", "pdf", references__a="a"), tmp_path / "root")
    content = {path: (done.skill.folder / path).read_bytes() for path in ("SKILL.md", "references/a.md")}
    assert done.package.sha256 == digest_of(content)


@pytest.mark.parametrize("content", [skill_md("pdf").encode(), zipped()], ids=["SKILL.md", "zip"])
def test_what_lies_at_a_url_is_installed(tmp_path: Path, content: bytes) -> None:
    with WebhookReceiver() as server:
        server.answer_with(Answer(body=content))
        package = package_from(server.url.replace("http:", "HTTP:"), allow_private=True)
    assert install(package, tmp_path, "home").skill.name == "pdf"
    assert [asked.path for asked in server.received] == ["/hook"]
    assert package.sha256 == hashlib.sha256(content).hexdigest()


@with_data
@pytest.mark.parametrize("name", ["internal-comms", "mcp-builder"])
def test_a_valid_skill_of_others_is_installed_unchanged(tmp_path: Path, name: str) -> None:
    done = installed(DATA / name, tmp_path)
    assert (done.skill.folder / "SKILL.md").read_bytes() == (DATA / name / "SKILL.md").read_bytes()
    assert parse(done.skill.folder / "SKILL.md") == done.skill


@with_data
def test_a_skill_of_others_gets_a_folder_of_its_own_name(tmp_path: Path) -> None:
    done = installed(DATA / "template", tmp_path / "root")
    assert (done.skill.name, done.skill.folder.name, done.skill.warnings) == ("template-skill", "template-skill", ())
    assert parse(done.skill.folder / "SKILL.md").warnings == ()


def test_an_invalid_skill_changes_nothing(tmp_path: Path) -> None:
    put(tmp_path, "elsewhere", "pdf", "---\nname: pdf\n---\n")
    put(tmp_path, "home", "pdf")
    for may_replace in (False, True):
        with pytest.raises(BadFile, match=r"pdf/SKILL\.md:\d: description: is missing"):
            install(
                package_from(str(tmp_path / "elsewhere/skills/pdf")),
                tmp_path,
                "home",
                may_replace=may_replace,
            )
    assert parse(tmp_path / "home/skills/pdf/SKILL.md").name == "pdf"


def test_a_folder_called_otherwise_is_installed_under_the_skills_name_unless_another_is_asked_for(
    tmp_path: Path,
) -> None:
    source = put(tmp_path, "elsewhere", "pdf-main", skill_md("pdf"))
    with pytest.raises(BadFile, match=r"pdf-main/SKILL\.md: the skill is called pdf, not other"):
        installed(source, tmp_path, "other")
    assert not (tmp_path / "home/skills").exists()
    assert installed(source, tmp_path).skill.folder == tmp_path / "home/skills/pdf"


@pytest.mark.parametrize("name", ["../../evil", "/tmp/evil", ".", "a/pdf", ""])
def test_a_name_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    (tmp_path / "SKILL.md").write_text(f"---\nname: '{name}'\ndescription: x\n---\n")
    for wanted in (None, name, "pdf"):
        with pytest.raises(BadFile):
            installed(tmp_path / "SKILL.md", tmp_path / "root", wanted)
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize(
    "line", ["name: pdf", "name: 'pdf' # x", 'name:   "pdf"', '"name": pdf', "license: x\nname: pdf"]
)
def test_a_name_is_found_however_it_is_written(tmp_path: Path, line: str) -> None:
    (tmp_path / "SKILL.md").write_text(f"---\n{line}\ndescription: x\n---\n")
    assert installed(tmp_path / "SKILL.md", tmp_path / "root").skill.name == "pdf"


def test_one_that_is_there_is_refused_with_what_helps(tmp_path: Path) -> None:
    source = put(tmp_path, "elsewhere", "pdf")
    assert installed(source, tmp_path).has_replaced is False
    with pytest.raises(Conflict, match="home/skills: pdf is there already, a folder; --force replaces what is there"):
        installed(source, tmp_path)
    package = package_from(str(source))
    assert install(package, tmp_path, "home", may_replace=True).has_replaced is True


def test_a_skill_for_another_workspace_is_refused(tmp_path: Path) -> None:
    source = put(tmp_path, "elsewhere", "pdf", skill_md("pdf", metadata="gateway:workspace: office"))
    package = package_from(str(source))
    with pytest.raises(Rejected, match="allows it in 'office' alone"):
        checked(package, "home")
    assert checked(package, "office").name == "pdf"


def test_a_checksum_is_compared_whatever_its_case() -> None:
    package = unpack(zipped())
    check_sha256(package, f" {package.sha256.upper()}\n")
    with pytest.raises(Rejected, match=f"the checksum is {package.sha256}, not 00"):
        check_sha256(package, "00")


def test_a_name_that_is_none_is_not_printed_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "SKILL.md").write_bytes(b'---\nname: "a\\eb"\nname: \x1b[2J\n---\n')
    with pytest.raises(BadFile) as refused:
        installed(tmp_path / "SKILL.md", tmp_path / "root")
    assert str(refused.value).isprintable()


@given(
    st.lists(st.text(st.sampled_from([*"./\\ab"]), min_size=1, max_size=9), max_size=3),
    st.sampled_from(["zip", "tar"]),
    st.sampled_from(["pdf/", ""]),
)
def test_whatever_members_are_called_nothing_is_written_outside(names: list[str], kind: str, prefix: str) -> None:
    raw = MAKERS[kind](*[Entry(prefix + name) for name in names])
    with TemporaryDirectory() as around:
        root = Path(around, "deep/er/root")
        with suppress(LoomError):
            install(unpack(raw), root, "home")
        skill = root / "home/skills/pdf"
        written = [path for path in Path(around).rglob("*") if path not in skill.parents and path != skill]
        assert [path for path in written if skill not in path.parents] == []
        assert (skill / "SKILL.md").is_file() or written == []


def test_a_source_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="gone: no such file or folder"):
        installed(tmp_path / "gone", tmp_path)


@pytest.mark.timeout(5)
def test_a_source_that_is_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.zip")
    with pytest.raises(Unsafe, match=r"pipe\.zip: no regular file"):
        installed(tmp_path / "pipe.zip", tmp_path / "root")


def test_a_refusal_names_the_source(tmp_path: Path) -> None:
    (tmp_path / "evil.zip").write_bytes(zipped(Entry("../evil")))
    with pytest.raises(Unsafe, match=r"evil\.zip: '\.\./evil': leads out of the skill's folder"):
        installed(tmp_path / "evil.zip", tmp_path / "root")
    assert not (tmp_path / "evil").exists()
