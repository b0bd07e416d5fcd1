"""What a feed hears of the logs, on a real Valkey."""

from collections.abc import Iterator
from concurrent.futures import Future

import pytest
import redis

from loom_worker.core.errors import Unavailable
from loom_worker.core.values.notifications import Event
from loom_worker.events.log import EventLog
from loom_worker.events.news import News, NewsFeed
from tests.support.until import until
from tests.support.waiting import LoopThread


class Hearing:
    """What was heard since it was last asked."""

    def __init__(self, feed: NewsFeed, loop: LoopThread) -> None:
        self.heard: list[News] = []
        self._feed, self._loop = feed, loop
        self.done = self.again()

    def again(self) -> "Future[None]":
        self.done = self._loop.start(self._hear())
        assert self.until(News("hearing")) == {News("hearing")}
        self._loop.run(self._feed.listen(["t"]))
        assert self.until(News("written", "t")) == {News("written", "t")}
        return self.done

    def until(self, news: News) -> set[News]:
        """All that was heard until this was."""
        until(lambda: news in self.heard, 10, "it was heard")
        found, self.heard[:] = {*self.heard}, []
        return found

    async def _hear(self) -> None:
        async for news in self._feed.news():
            self.heard.append(news)


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    with LoopThread() as made:
        yield made


@pytest.fixture
def feed(events: EventLog) -> NewsFeed:
    return events.feed()


@pytest.fixture
def hearing(feed: NewsFeed, loop: LoopThread) -> Hearing:
    """Listens to the log of one turn."""
    return Hearing(feed, loop)


def test_a_log_that_has_grown_is_news_and_another_one_is_not(hearing: Hearing, events: EventLog) -> None:
    events.append("other", [("x", {})], least=0)
    events.append("t", [("x", {})], least=0)
    assert hearing.until(News("written", "t")) == {News("written", "t")}


@pytest.mark.parametrize("is_restored", [False, True])
def test_the_end_of_any_turn_is_news(hearing: Hearing, events: EventLog, is_restored: bool) -> None:
    events.append("other", [("turn.started", {})], least=0)
    if is_restored:
        events.restore("other", [Event(1, "turn.started", {}), Event(2, "turn.completed", {})])
    else:
        events.append("other", [("turn.completed", {})], least=0)
    assert hearing.until(News("ended", "other")) == {News("ended", "other")}


def test_a_log_that_is_made_anew_or_forgotten_is_news(hearing: Hearing, events: EventLog) -> None:
    events.restore("t", [Event(1, "x", {})])
    assert hearing.until(News("written", "t")) == {News("written", "t")}
    events.forget({"t": False})
    assert hearing.until(News("ended", "t")) == {News("written", "t"), News("ended", "t")}


def test_nothing_is_heard_of_a_log_that_is_listened_to_no_more(
    hearing: Hearing, feed: NewsFeed, loop: LoopThread, events: EventLog
) -> None:
    loop.run(feed.ignore(["t"]))
    events.append("t", [("x", {})], least=0)
    events.append("u", [("turn.completed", {})], least=0)
    assert hearing.until(News("ended", "u")) == {News("ended", "u")}


def test_a_feed_whose_connection_is_lost_says_so_and_can_be_opened_again(
    hearing: Hearing, feed: NewsFeed, loop: LoopThread, events: EventLog, valkey: redis.Redis
) -> None:
    valkey.client_kill_filter(_type="pubsub")
    with pytest.raises(Unavailable):
        hearing.done.result(60)
    loop.run(feed.listen(["t"]))  # in vain
    hearing.again()
    events.append("t", [("turn.completed", {})], least=0)
    assert hearing.until(News("ended", "t")) == {News("written", "t"), News("ended", "t")}


def test_a_redis_that_is_not_there_has_no_news(nowhere: EventLog, loop: LoopThread) -> None:
    async def hear() -> None:
        async for _ in nowhere.feed().news():
            raise AssertionError("there is none")

    with pytest.raises(Unavailable):
        loop.run(hear())
