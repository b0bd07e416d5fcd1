import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from loom_worker.core.errors import BadFile
from loom_worker.core.values.skills import Skill
from loom_worker.core.yaml_files import MAX_BYTES
from loom_worker.skills.spec import ONLY_IN, is_skill_name, notes, parse, skill_from
from tests.unit.skills.parts import put, skill_md

DATA = os.environ.get("LOOM_TEST_DATA")
PUBLIC = pytest.mark.skipif(not DATA, reason="LOOM_TEST_DATA is not set: no skills of others")


def read(text: str | bytes, name: str = "pdf") -> Skill:
    raw = text.encode() if isinstance(text, str) else text
    return skill_from(raw, where=Path("SKILL.md"), folder=Path("skills", name))


def refusal(text: str | bytes, name: str = "pdf") -> str:
    with pytest.raises(BadFile) as refused:
        read(text, name)
    return str(refused.value)


def test_every_field_of_the_format_is_read(tmp_path: Path) -> None:
    text = skill_md(
        "pdf",
        "# PDF\n\nFill forms.",
        license="Apache-2.0",
        compatibility="Requires qpdf",
        allowed_tools="Bash(git:*) Bash(jq -r:*) Read",
        metadata='author: example-org\nversion: "1.0"\ngateway:trigger: keyword\ngateway:keywords: pdf form',
    )
    folder = put(tmp_path, "w", "pdf", text, references__guide="# Guide")
    skill = parse(folder / "SKILL.md")
    assert (skill.name, skill.description, skill.body) == ("pdf", "What pdf does.", "# PDF\n\nFill forms.")
    assert (skill.license, skill.compatibility) == ("Apache-2.0", "Requires qpdf")
    assert skill.allowed_tools == ("Bash(git:*)", "Bash(jq -r:*)", "Read")
    assert skill.metadata["version"] == "1.0"
    assert (skill.trigger, skill.keywords) == ("keyword", ("pdf", "form"))
    assert (skill.folder, skill.files, skill.is_linked) == (folder, ("references/guide.md",), False)
    assert len(skill.digest) == 64


def test_the_smallest_skill_has_a_name_and_a_description() -> None:
    skill = read("---\nname: pdf\ndescription: Reads PDF.\n---")
    assert (skill.body, skill.trigger, skill.allowed_tools, dict(skill.metadata)) == ("", "model", (), {})


@pytest.mark.cases("name", ["a", "7", "pdf-processing", "a-b-c", "x" * 64, "data2", "résumé", "技能", "навык-1"])
def test_a_name_of_lower_case_letters_digits_and_single_hyphens_is_taken(name: str) -> None:
    assert is_skill_name(name)
    assert read(skill_md(f"'{name}'"), name).name == name


@pytest.mark.cases("name", ["-pdf", "pdf-", "_pdf", "x" * 201, "a/b", "..", "a\\b", "-", "a<b", 'a"b', "a\tb"])
def test_a_name_that_could_be_mistaken_for_something_else_is_refused(name: str) -> None:
    assert not is_skill_name(name)
    text = yaml.safe_dump({"name": name, "description": "x"})
    assert refusal(f"---\n{text}---\n", name).startswith("SKILL.md:")


@pytest.mark.cases(
    ("written", "used"),
    [
        *((name, name) for name in ("PDF", "Pdf", "pdf--x", "x" * 65, "a_b", "a.b", "НАВЫК")),
        ("Brand Guidelines", "Brand-Guidelines"),
    ],
)
def test_a_name_that_others_write_loads_with_a_warning(written: str, used: str) -> None:
    assert not is_skill_name(written)
    skill = read(f"---\nname: '{written}'\ndescription: x\n---\n", used)
    assert skill.name == used
    (warning,) = skill.warnings
    assert warning.startswith(f"SKILL.md:2: name: {written!r}: the format has lower-case letters")
    assert warning.endswith(f"it is used as {used!r}") == (used != written)


def test_a_folder_of_another_name_is_a_warning() -> None:
    skill = read(skill_md("pdf"), "other")
    assert (skill.name, skill.folder.name) == ("pdf", "other")
    assert skill.warnings == ("SKILL.md:2: name: 'pdf' is not the name of its folder, 'other'",)


@pytest.mark.parametrize(("field", "most"), [("description", 1024), ("compatibility", 500)])
def test_a_text_of_more_characters_than_the_format_allows_is_a_warning(field: str, most: int) -> None:
    assert read(skill_md("pdf", **{field: "é" * most})).warnings == ()
    long = read(skill_md("pdf", **{field: "é" * (most + 1)}))
    assert getattr(long, field) == "é" * (most + 1)
    assert [f"{field}: {most + 1} characters, the format has at most {most}" in told for told in long.warnings] == [
        True
    ]


PLAIN = """
Use when: asked ~ It's for: PDF, DOCX: all ~ Reads `a: b` # really ~ say: "what" it is ~ @mentions ~ & more ~ {a} or {b}
`pdf` is read. ~ # Title ~ %s is filled in ~ *All* of it ~ * a list ~ !important ~ {{ name }} is filled in: yes ~ [x
[beta] Plans ~ - a: b - c ~ ? who: knows ~ Ends in a colon: for ~ !!python/object/apply:os.system [x]
"""
LINES = """ |  Checks it.| Then: build. ~ >-|Checks it. Then: build. ~ Checks it.|# no text||\tThen: build.
 ~ 'Checks it.|  Then: build.' ~ "Checks it.|  Then: build." """


AS_WRITTEN = [(text, text) for text in PLAIN.strip().replace("\n", " ~ ").split(" ~ ")]
JOINED = [(text.replace("|", "\n"), "Checks it. Then: build.") for text in LINES.replace("\n", "").split(" ~ ")]
QUOTED = ('"Say "retro" or "look: back"."', 'Say "retro" or "look: back".')


@pytest.mark.cases(("written", "meant"), [*AS_WRITTEN, *JOINED, QUOTED])
@pytest.mark.cases("end", ["\n", "\r\n"])
def test_a_text_needs_no_quotes(written: str, meant: str, end: str) -> None:
    text = f"---\t\nname: pdf\ndescription: {written}\nhint: [a] [b]\nlicense: MIT\n--- \nBody.\n"
    skill = read(text.replace("\n", end))
    assert (skill.description, skill.license, skill.body) == (meant, "MIT", "Body.")


UNREAD = (
    "hint: [file] [mode: fast|slow] ~ hint: @a ~ x: {a: [b} ~ x: 1\nx: 2 ~ x:\n y: 1\n y: 2 ~ x: &a b\ny: *a ~ x: 'b"
    ' ~ x: !!python/object/apply:os.system [a] ~ x: !!int a ~ "x y": @z ~ x:\n\t- a\n\t- b: c ~ x: \x01 ~ ? x ~ a b: @x'
)


@pytest.mark.cases(
    "unread", [*UNREAD.split(" ~ "), f"x: {'[' * 60}", "x: &a b\ny: [" + "*a, " * 200, f"{'k' * 2000}: @x"]
)
def test_a_field_that_is_not_read_refuses_no_skill(unread: str) -> None:
    fields = ["name: pdf", unread, "description: Reads PDF.", "license: MIT"]
    for n in range(2):  # also as the first field
        skill = read("---\n" + "\n".join(fields[n:] + fields[:n]) + "\n---\n")
        assert (skill.name, skill.description, skill.license) == ("pdf", "Reads PDF.", "MIT")


def test_what_is_read_as_plain_text_is_a_warning_at_its_line() -> None:
    text = "---\nx: @y\nname: pdf\nmetadata:\n  author: @me\n  gateway:workspace: home\n  tags:\n    - '@a'\n"
    skill = read(
        text + 'allowed-tools: [Read, Bash(git: *), "Edit"]\ndescription: a: b\ncompatibility: [a, {b: c}]\n---\n'
    )
    told = [warning.rpartition(": no valid YAML")[0] for warning in skill.warnings]
    assert told == ["SKILL.md:4: metadata", "SKILL.md:9: allowed-tools", "SKILL.md:10: description"]
    assert skill.metadata == {"author": "@me", "gateway:workspace": "home", "tags": "@a"}
    assert (skill.allowed_tools, skill.compatibility) == (("Read", "Bash(git: *)", "Edit"), "a, b: c")


LOSING = """{gateway:workspace: @a} ~ [gateway:workspace: a] ~ [{gateway: {workspace: a}}] ~ |\n  gateway:workspace: a
 ~ \n  - gateway:workspace: @a ~ ["gateway\\x3aworkspace"]""".split(" ~ ")


@pytest.mark.cases(
    ("text", "reason"),
    [
        ("", "1: the frontmatter is missing"),
        ("# Title\n", "1: the frontmatter is missing"),
        ("\n---\nname: pdf\n---\n", "1: the frontmatter is missing"),
        ("---\nname: pdf\ndescription: x\n", "1: the frontmatter is not closed"),
        ("---\n---\n", "1: the frontmatter must be fields"),
        ("---\n- a\n---\n", "1: the frontmatter must be fields"),
        ("---\njust text\n---\n", "1: the frontmatter must be fields"),
        ("---\nname: pdf\n---\n", "2: description: is missing"),
        ("---\nname: pdf\ndescription: '  '\n---\n", "3: description: is missing"),
        ("---\nname: pdf\ndescription: null\n---\n", "3: description: is missing"),
        ("---\ndescription: x\n---\n", "2: name: is missing"),
        ("---\nname: [pdf]\ndescription: x\n---\n", "2: name: a text is needed"),
        ("---\nname: pdf\nname: pdf\ndescription: x\n---\n", "3: name stands there twice"),
        *((f"---\nname: pdf\nmetadata: {text}\ndescription: x\n---\n", "3: metadata: fields") for text in LOSING),
        ("---\nname: !!python/object/apply:os.system [x]\n---\n", "2: name: '!!python"),
        (skill_md("pdf", metadata="gateway:trigger: never"), "5: gateway:trigger: 'never' is none of"),
        (skill_md("pdf", metadata="gateway:trigger: keyword"), "5: gateway:trigger: keyword needs"),
        (skill_md("pdf", metadata=f"gateway:keywords: {'w ' * 101}\nx: y"), ""),
        (skill_md("pdf", metadata=f"note: {'x' * 20_000}"), "4: metadata: 20004 characters, at most 16384"),
        (skill_md("pdf", metadata=f"gateway:keywords: {'x' * 101}"), "5: gateway:keywords: at most 100"),
    ],
)
def test_what_breaks_a_rule_is_refused_with_file_and_line(text: str, reason: str) -> None:
    if reason:
        assert refusal(text).startswith(f"SKILL.md:{reason}")
    else:
        assert read(text).keywords == ("w",)


@pytest.mark.cases(
    ("field", "metadata", "tools"),
    [
        *((f"metadata: {text}", {}, ()) for text in ("[a, b]", "foo", "{author: @me}", "Use: when", "\n  - @a\n  - b")),
        ("metadata: # mine\n  author: @me\n  gateway:workspace: home", {"author": "@me", ONLY_IN: "home"}, ()),
        ("allowed-tools:\n  - Bash: git\n  - Read", {}, ("Bash: git", "Read")),
        ("allowed-tools:\n  Bash: false", {}, ("Bash: false",)),
    ],
)
def test_a_field_of_another_form_is_a_warning(field: str, metadata: dict[str, str], tools: tuple[str, ...]) -> None:
    skill = read(f"---\nname: pdf\ndescription: x\n{field}\n---\n")
    assert (dict(skill.metadata), skill.allowed_tools) == (metadata, tools)
    assert skill.warnings[0].startswith(f"SKILL.md:4: {field.partition(':')[0]}: ")


def test_what_is_not_utf8_is_refused() -> None:
    assert refusal(b"---\nname: \xff\n---\n") == "SKILL.md: not UTF-8 (byte 10)"


@pytest.mark.cases("end", ["\n", "\r\n", "\r"])
@pytest.mark.cases("mark", ["", "\ufeff"])
def test_line_ends_and_byte_order_marks_of_any_system_make_no_difference(end: str, mark: str) -> None:
    skill = read((mark + skill_md("pdf", "One.\n\nTwo.")).replace("\n", end))
    assert (skill.name, skill.body) == ("pdf", "One.\n\nTwo.")


def test_a_line_of_hyphens_in_the_body_stays_in_the_body() -> None:
    assert read(skill_md("pdf", "a\n\n---\n\nb")).body == "a\n\n---\n\nb"


@pytest.mark.cases(
    ("written", "meant"),
    [
        ("1.10", "1.10"),
        ("yes", "yes"),
        ("0x10", "0x10"),
        ("2024-01-01", "2024-01-01"),
        ("null", ""),
        ("[a, b]", "a, b"),
    ],
)
def test_values_are_the_text_that_stands_there(written: str, meant: str) -> None:
    assert read(skill_md("pdf", metadata=f"version: {written}")).metadata == {"version": meant}


def test_a_number_can_be_a_name_and_a_description() -> None:
    skill = read("---\nname: 2024\ndescription: 3.10\n---\n", "2024")
    assert (skill.name, skill.description) == ("2024", "3.10")


@pytest.mark.parametrize(
    "written", ["Read Write Bash(git add:*)", "Read, Write,Bash(git add:*)", "[Read, Write, 'Bash(git add:*)']"]
)
def test_tools_are_told_apart_by_spaces_commas_or_as_a_list(written: str) -> None:
    assert read(skill_md("pdf", allowed_tools=written)).allowed_tools == ("Read", "Write", "Bash(git add:*)")


@pytest.mark.cases(
    ("written", "meant"),
    [
        ("server deploy  server", ("server", "deploy")),
        ("sql server, deploy,, ", ("sql server", "deploy")),
        ("部署，服务器、集群", ("部署", "服务器", "集群")),
        ("[pull request, git]", ("pull request", "git")),
    ],
)
def test_keywords_are_told_apart_by_commas_if_there_are_any(written: str, meant: tuple[str, ...]) -> None:
    assert read(skill_md("pdf", metadata=f"gateway:keywords: {written}")).keywords == meant


@pytest.mark.cases("written", ["auto", "manual", "keyword", "model", "AUTO"])
def test_each_trigger_is_known_in_any_case_of_letters(written: str) -> None:
    text = skill_md("pdf", metadata=f"gateway:trigger: {written}\ngateway:keywords: a")
    assert read(text).trigger == written.lower()


def test_fields_that_the_format_does_not_know_are_tolerated_and_noted(tmp_path: Path) -> None:
    text = skill_md("pdf", "x\n" * 600, version="2", metadata="gateway:keywords: a\ngateway:color: red")
    told = notes(put(tmp_path, "w", "pdf", text) / "SKILL.md")
    ends = ["version: no field of the format, not read", "gateway:color: is not read"]
    ends += ["gateway:keywords: has no effect with trigger model", "at 500 lines"]
    assert [line.endswith(end) for line, end in zip(told, ends, strict=True)] == [True] * 4
    assert ":4: version" in told[0]


def test_a_plain_skill_has_no_notes(tmp_path: Path) -> None:
    assert notes(put(tmp_path, "w", "pdf") / "SKILL.md") == ()


def test_a_file_that_is_too_large_gone_or_a_link_is_a_bad_file(tmp_path: Path) -> None:
    folder = put(tmp_path, "w", "pdf", skill_md("pdf", "x" * MAX_BYTES))
    with pytest.raises(BadFile, match="larger than 262144 bytes"):
        parse(folder / "SKILL.md")
    (folder / "SKILL.md").rename(folder / "other.md")
    with pytest.raises(BadFile, match=r"SKILL\.md: No such file"):
        parse(folder / "SKILL.md")
    (folder / "SKILL.md").symlink_to("other.md")
    with pytest.raises(BadFile, match="a link, which is not followed"):
        parse(folder / "SKILL.md")


def is_skill_or_refused(raw: bytes) -> bool:
    try:
        return bool(read(raw).description)
    except BadFile as error:
        return str(error).startswith("SKILL.md:")


FRONT = st.one_of(
    st.text(max_size=200),
    st.dictionaries(
        st.sampled_from(["name", "description", "metadata", "allowed-tools", "license", "compatibility", "x", "<<"]),
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.text(max_size=20),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
        ),
    ).map(lambda fields: yaml.safe_dump(fields, allow_unicode=True)),
)


@given(FRONT, st.text(max_size=50))
def test_any_frontmatter_gives_a_skill_or_a_bad_file(front: str, body: str) -> None:
    assert is_skill_or_refused(f"---\n{front}\n---\n{body}".encode("utf-8", "replace"))


@given(st.binary(max_size=200))
def test_any_bytes_give_a_skill_or_a_bad_file(raw: bytes) -> None:
    for text in (raw, b"---\n" + raw, b"---\nname: pdf\ndescription: " + raw + b"\n---\n"):
        assert is_skill_or_refused(text)


@PUBLIC
@pytest.mark.parametrize("name", ["internal-comms", "mcp-builder"])
def test_a_valid_skill_of_others_loads_unchanged(name: str) -> None:
    path = Path(str(DATA), "skills", name, "SKILL.md")
    skill = parse(path)
    assert (skill.name, skill.trigger, notes(path)) == (name, "model", ())
    assert path.read_text(encoding="utf-8").rstrip().endswith(skill.body)


@PUBLIC
def test_a_skill_of_others_whose_folder_has_another_name_loads_with_a_warning() -> None:
    skill = parse(Path(str(DATA), "skills/template/SKILL.md"))
    (warning,) = skill.warnings
    assert warning.endswith("SKILL.md:2: name: 'template-skill' is not the name of its folder, 'template'")


def test_a_strangers_key_is_told_in_one_line_without_what_a_terminal_obeys(tmp_path: Path) -> None:
    key = '"\\e[2Jevil\\nloom: all is well\\u202e"'
    text = f"---\nname: pdf\ndescription: x\n{key}: 1\n---\n"
    (note,) = notes(put(tmp_path, "w", "pdf", text) / "SKILL.md")
    assert note.endswith("SKILL.md:4: [2Jevil loom: all is well: no field of the format, not read")
