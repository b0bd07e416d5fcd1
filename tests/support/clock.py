"""A clock that a test moves."""

from dataclasses import dataclass


@dataclass
class Clock:
    """Seconds that pass when a test says so, read by a call or as of the module ``time``."""

    now_s: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now_s

    monotonic = time = __call__

    def sleep(self, wait_s: float) -> None:
        self.now_s += wait_s
