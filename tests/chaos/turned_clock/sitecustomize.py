"""Makes time.sleep work under libfaketime.

Up to 0.9.10 at least, that library turns the moment until which Python 3.11 sleeps into one before the machine was
started where the monotonic clock is left alone (wolfcw/libfaketime, issue 426): every sleep fails with EINVAL.
"""

import select
import time
from typing import SupportsIndex


def _sleep(seconds: float | SupportsIndex, /) -> None:
    if float(seconds) < 0:
        raise ValueError("sleep length must be non-negative")
    select.select((), (), (), float(seconds))


time.sleep = _sleep
