"""What agents are made of, in the version that a process has accepted; other processes are told of it."""

from typing import Protocol


class Part(Protocol):
    """Something read from files or servers that every process must have alike: agents, patterns, a file of tools."""

    def digest(self) -> str | None:
        """Of what this process uses, the same in every process that uses the same; None if it has nothing yet. Quick.

        Equal contents read from folders of other names are the same.
        """

    def renew(self) -> None:
        """Read the source now, in this thread; bounded in time. What is wrong with it leaves things as they were.

        Raises:
            OSError: it cannot be reached.
        """


class Content(Protocol):
    """What all processes have accepted."""

    def follow(self, name: str, part: Part) -> None:
        """Compare a part of this process with those of the same name in others from now on."""

    def accepted(self, name: str) -> None:
        """Tell others that this process uses another version of a part. Call it without holding a lock."""

    def catch_up(self) -> None:
        """Take up what any process has accepted so far."""


class Alone:
    """The content of a process that compares itself with nobody."""

    def follow(self, name: str, part: Part) -> None:
        """Nobody is there to compare with."""

    def accepted(self, name: str) -> None:
        """Nobody is told."""

    def catch_up(self) -> None:
        """There is nothing else."""
