"""What can go wrong with the bytes of a large result; each is safe to show and is counted by its name."""

from typing import ClassVar

from loom_worker.blobs.counters import Counted
from loom_worker.core.errors import LoomError


class Unreadable(LoomError):
    """A kept result cannot be had: whoever needs it must make it again."""

    counted: ClassVar[Counted] = "damaged"


class Lost(Unreadable):
    """Its file is gone."""

    counted: ClassVar[Counted] = "lost"


class Damaged(Unreadable):
    """Its bytes are not those that were stored."""


class Bomb(Damaged):
    """Its bytes would unpack to more than was stored; they were not unpacked."""

    counted: ClassVar[Counted] = "bombs"


class Unwritable(LoomError):
    """A result cannot be kept: the folder refuses it."""

    counted: ClassVar[Counted] = "unwritable"


class DiskFull(Unwritable):
    """The disk has no room, whatever the store's own bound."""

    counted: ClassVar[Counted] = "disk_full"
