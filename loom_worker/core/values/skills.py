"""Skills in the agentskills.io format: instructions in a folder, read only as far as they are needed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Trigger = Literal["model", "auto", "manual", "keyword"]
"""model (what a skill without ``gateway:trigger`` has): the model reads it when its description fits · auto: always in
the system text · manual: when the user says ``use skill: name`` · keyword: when the message has one of its keywords."""


@dataclass(frozen=True, slots=True)
class Skill:
    """One ``SKILL.md``, with the folder it lies in."""

    name: str
    """Lower-case letters, digits and single hyphens, at most 64; others have capitals, ``_``, ``.`` or more of them."""
    description: str
    """What it does and when to use it; the model is shown 1,024 characters of it."""
    body: str
    """The Markdown behind the frontmatter."""
    folder: Path
    """Where its files are; of a linked skill the source's folder."""
    license: str = ""
    compatibility: str = ""
    """What it needs of its surroundings, in words; in a list the model is shown 500 characters of it."""
    allowed_tools: tuple[str, ...] = ()
    """Tools it is meant to use without being asked; it gains none by naming it."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    trigger: Trigger = "model"
    keywords: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """Its other files, as paths within the folder: references/, scripts/, assets/."""
    digest: str = ""
    """SHA-256 of ``SKILL.md``, hexadecimal."""
    is_linked: bool = False
    warnings: tuple[str, ...] = ()
    """What the format does not allow, though it loads: ``file:line: reason`` each."""


@dataclass(frozen=True, slots=True)
class SkillSet:
    """The skills of one workspace."""

    skills: tuple[Skill, ...] = ()
    """By name."""
    problems: tuple[str, ...] = ()
    """Why folders were left out, each as ``file:line: reason``; the others are not touched by it."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the format does not allow in those that load."""
        return tuple(warning for skill in self.skills for warning in skill.warnings)
