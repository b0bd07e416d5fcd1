"""What a feed hears of the logs, on a real Valkey."""

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
import redis

from loom_worker.core.errors import Unavailable
from loom_worker.core.values.notifications import Event
from loom_worker.events.log import EventLog
from loom_worker.events.news import News, NewsFeed
from tests.support.until import until


@pytest.fixture
def feed(events: EventLog) -> Iterator[NewsFeed]:
    """Listens to the log of one turn."""
    with closing(events.feed()) as feed:
        feed.open()
        feed.listen(["t"])
        assert heard(feed, lambda news: "t" in news.written) == News(written={"t"})
        yield feed


def heard(feed: NewsFeed, is_enough: Callable[[News], bool]) -> News:
    """What was heard until it was enough."""
    total = News()

    def take() -> bool:
        news = feed.take()
        total.written |= news.written
        total.ended |= news.ended
        return is_enough(total)

    until(take, 10, "enough was heard")
    return total


def ended(turn_id: str) -> Callable[[News], bool]:
    return lambda news: turn_id in news.ended


def test_a_log_that_has_grown_is_news_and_another_one_is_not(feed: NewsFeed, events: EventLog) -> None:
    events.append("other", [("x", {})], least=0)
    events.append("t", [("x", {})], least=0)
    assert heard(feed, lambda news: bool(news.written)) == News(written={"t"})


@pytest.mark.parametrize("is_restored", [False, True])
def test_the_end_of_any_turn_is_news(feed: NewsFeed, events: EventLog, is_restored: bool) -> None:
    events.append("other", [("turn.started", {})], least=0)
    if is_restored:
        events.restore("other", [Event(1, "turn.started", {}), Event(2, "turn.completed", {})])
    else:
        events.append("other", [("turn.completed", {})], least=0)
    assert heard(feed, ended("other")) == News(ended={"other"})


def test_a_log_that_is_made_anew_or_forgotten_is_news(feed: NewsFeed, events: EventLog) -> None:
    events.restore("t", [Event(1, "x", {})])
    assert heard(feed, lambda news: bool(news.written)) == News(written={"t"})
    events.forget({"t": False})
    assert heard(feed, ended("t")) == News(written={"t"}, ended={"t"})


def test_nothing_is_heard_of_a_log_that_is_listened_to_no_more(feed: NewsFeed, events: EventLog) -> None:
    feed.ignore(["t"])
    events.append("t", [("x", {})], least=0)
    events.append("u", [("turn.completed", {})], least=0)
    assert heard(feed, ended("u")) == News(ended={"u"})


def test_a_feed_whose_connection_is_lost_says_so_and_can_be_opened_again(
    feed: NewsFeed, events: EventLog, valkey: redis.Redis
) -> None:
    valkey.client_kill_filter(_type="pubsub")
    with pytest.raises(Unavailable):
        heard(feed, lambda _: False)
    assert not feed.is_open
    feed.open()
    feed.listen(["t"])
    heard(feed, lambda news: "t" in news.written)
    events.append("t", [("turn.completed", {})], least=0)
    assert heard(feed, ended("t")) == News(written={"t"}, ended={"t"})


def test_a_redis_that_is_not_there_has_no_news(nowhere: EventLog) -> None:
    feed = nowhere.feed()
    with pytest.raises(Unavailable):
        feed.open()
    assert not feed.is_open
