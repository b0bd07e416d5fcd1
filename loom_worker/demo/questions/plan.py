"""What a question asks for, once all of its words are accounted for."""

from dataclasses import dataclass

from loom_worker.demo.slots import Period


@dataclass(frozen=True, slots=True)
class Where:
    """A condition of a question: one dimension has one of some values, or a piece of SQL holds."""

    wording: str
    """As the answer names it."""
    dimension: str = ""
    values: tuple[str, ...] = ()
    """As they stand in the database."""
    is_negated: bool = False
    """Rows that have none of the values."""
    rule: str = ""
    """The name of a condition that is no value; see ``rules`` in ``shop_figures.yaml``."""
    amount: str = ""
    """Digits, for a rule that compares."""
    sign: str = ""


@dataclass(frozen=True, slots=True)
class Head:
    """What is asked for, without conditions and period."""

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
    """A dimension that must be restricted to a value."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A question that can be asked of the shop's tables."""

    head: Head
    wheres: tuple[Where, ...] = ()
    periods: tuple[Period, ...] = ()
    is_change: bool = False
    """The second period is the one before the first."""
    asked: str = ""
    """``up`` or ``down`` where the question takes it for granted."""
    asks_why: bool = False
    notes: tuple[str, ...] = ()
    """What was read otherwise than it was written."""

    @property
    def is_compared(self) -> bool:
        """Are two periods compared, the first one with the second?"""
        return len(self.periods) > 1
