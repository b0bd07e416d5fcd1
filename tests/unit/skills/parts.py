"""Skills on disk and in memory, as the tests of this room need them."""

from collections.abc import Mapping
from pathlib import Path

from loom_worker.core.values.skills import Skill, Trigger

FOLDER = Path("/nowhere")


def skill_md(name: str, body: str = "Do it.", **fields: str) -> str:
    """A SKILL.md; fields as further lines of YAML, ``metadata`` as ``key: value`` lines."""
    lines = [f"name: {name}", *([] if "description" in fields else [f"description: What {name} does."])]
    for key, value in fields.items():
        text = "\n" + "\n".join(f"  {line}" for line in value.splitlines()) if key == "metadata" else f" {value}"
        lines.append(f"{key.replace('_', '-')}:{text}")
    return "\n".join(["---", *lines, "---", "", body, ""])


def put(root: Path, workspace: str, name: str, text: str = "", **files: str) -> Path:
    """A skill's folder, with further files by path (``__`` for ``/``, and ``.md`` behind)."""
    folder = root / workspace / "skills" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_text(text or skill_md(name), encoding="utf-8")
    for path, content in files.items():
        file = folder / f"{path.replace('__', '/')}.md"
        file.parent.mkdir(exist_ok=True)
        file.write_text(content, encoding="utf-8")
    return folder


def a_skill(name: str, trigger: Trigger = "model", body: str = "Do it.", **more: object) -> Skill:
    """A skill that lies nowhere."""
    fields: Mapping[str, object] = {"description": f"What {name} does.", "folder": FOLDER / name, **more}
    return Skill(name=name, body=body, trigger=trigger, **fields)  # type: ignore[arg-type]
