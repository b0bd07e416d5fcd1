"""What a question asks for, once all of its words are accounted for."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from loom_worker.demo.slots import Period


@dataclass(frozen=True, slots=True)
class Where:
    """A condition of a question: a dimension has one of some values, or a rule of ``shop_figures.yaml`` holds."""

    wording: str
    """As the answer names it."""
    kinds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Dimensions that the words may be of, with values as the database writes them; just one in a plan."""
    noun: str = ""
    """The term beside the values: Norwegian suppliers."""
    is_negated: bool = False
    is_list: bool = False
    """Are several values named, Audio and Lighting?"""
    rule: str = ""
    sign: str = ""
    amount: str = ""
    """Digits, for a rule that compares."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A question that can be asked of the shop's tables."""

    fact: str
    measures: tuple[str, ...] = ()
    """The first one decides the order of groups; none: the rows themselves are asked for."""
    group: str = ""
    limit: int | None = None
    is_ascending: bool = False
    rank_by: str = ""
    """The column that rows are ranked by where they are listed."""
    has_day: bool = False
    """The words name the day that a period is of: signed up, hired."""
    needs: str = ""
    """A dimension that must be restricted to a value, or ``compared``: two periods, or ``group``: a grouping."""
    wheres: tuple[Where, ...] = ()
    periods: tuple[Period, ...] = ()
    """Two are compared, the first one with the second."""
    is_change: bool = False
    """The second period is the one before the first."""
    asked: str = ""
    """``up`` or ``down`` where the question takes it for granted."""
    asks_why: bool = False
    notes: tuple[str, ...] = ()
    """What was read otherwise than it was written."""

    @property
    def is_compared(self) -> bool:
        """Are two periods compared?"""
        return len(self.periods) > 1
