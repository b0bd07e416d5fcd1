import re

from loom_worker.core.logs import IDS
from tests.unit.docs.pages import ROOT, text

PAGE = "docs/operations.md"


def section(name: str) -> str:
    found = re.search(rf"^## {re.escape(name)}\n(.*?)(?=^## |\Z)", text(PAGE), re.DOTALL | re.MULTILINE)
    assert found is not None, name
    return found[1]


def test_every_field_of_a_log_line_is_explained() -> None:
    told = section("Logs")
    assert [name for name in (*IDS, "time", "level", "logger", "message", "exception") if f"`{name}`" not in told] == []


def test_every_message_of_the_table_is_logged() -> None:
    table = section("Logs").partition("| message | level |")[2]
    told = re.findall(r"`((?:turn|tool|judge|webhook|memory)\.\w+)`", table)
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "loom_worker").rglob("*.py"))
    whole = [name for name in told if f'log.info("{name}"' in sources]
    forms = [name for name in told if re.search(rf'log\.(?:info|log)\([^\n]*"{name.partition(".")[0]}\.%s', sources)]
    assert len(told) > 10
    assert [name for name in told if name not in whole + forms] == []


def test_every_section_that_a_page_points_at_is_there() -> None:
    for path in (ROOT / "docs").glob("*.md"):
        for page, anchor in re.findall(
            r"\]\((operations\.md|runbook\.md)#([\w-]+)\)", path.read_text(encoding="utf-8")
        ):
            titles = re.findall(r"^#+ (.+)$", text(f"docs/{page}"), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
            assert anchor in anchors, f"{path.name}: {page}#{anchor}"
