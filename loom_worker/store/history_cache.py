"""L1 of the sessions that this process has read lately, so that a turn reads only what was said since.

A session's messages are only ever appended, and leave L1 from its front (``first_n`` of its memory): so what was read
once stays true, and the next turn needs the messages behind the last one known. Deleting a session makes its lane's key
useless for good.
"""

import threading
from collections import OrderedDict

from loom_worker.core.values.sessions import Message

MOST_CHARS = 32 * 1024 * 1024
"""Characters of all texts that are kept together. A message takes about a kilobyte beside its text."""
_BESIDE_CHARS = 1_000


class HistoryCache:
    """By lane, the messages read last. Any thread may use it."""

    def __init__(self, most_chars: int = MOST_CHARS) -> None:
        self._most_chars = most_chars
        self._chars = 0
        self._known: OrderedDict[str, tuple[tuple[Message, ...], int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, lane: str) -> tuple[Message, ...]:
        """What is known of a lane: messages without a gap, oldest first; perhaps some that have left L1 since."""
        with self._lock:
            known = self._known.get(lane)
            if known is None:
                return ()
            self._known.move_to_end(lane)
            return known[0]

    def keep(self, lane: str, history: tuple[Message, ...]) -> None:
        """Remember what was read just now; the lanes that were read longest ago make room for it."""
        with self._lock:
            before, chars = self._known.pop(lane, ((), 0))
            self._chars -= chars
            if not before or not history or before[0] is not history[0]:
                before, chars = (), 0  # else it has grown at its end
            chars += sum(map(_chars_of, history[len(before) :]))
            self._known[lane] = history, chars
            self._chars += chars
            while self._chars > self._most_chars:
                _, (_, gone) = self._known.popitem(last=False)
                self._chars -= gone


def _chars_of(message: Message) -> int:
    chat = message.chat
    return _BESIDE_CHARS + len(chat.text) + len(chat.context) + sum(len(each.content) for each in chat.outcomes)
