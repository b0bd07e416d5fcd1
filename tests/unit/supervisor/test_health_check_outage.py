import pytest
import redis

from loom_worker.core.errors import Unavailable
from loom_worker.lanes.readiness import Readiness
from loom_worker.supervisor.health_check import TOLD_AFTER_LOOKS, Telling, looking, server_in_words

WELL = Readiness((), 0.0)


class Ward:
    """A Redis that is there or away as a test says, and what was said of it."""

    def __init__(self) -> None:
        self.is_away = False
        self.said: list[str] = []
        self.telling = Telling(self._look, server="Redis", say=self.said.append)

    def _look(self) -> Readiness:
        if self.is_away:
            raise Unavailable("Redis did not answer") from redis.ConnectionError("Connection refused.")
        return WELL

    def looks(self, times: int, *, is_away: bool) -> list[str]:
        """What is said during so many looks."""
        self.is_away, self.said[:] = is_away, []
        for _ in range(times):
            if is_away:
                with pytest.raises(Unavailable):
                    self.telling()
            else:
                assert self.telling() is WELL
        return self.said[:]


def test_an_outage_is_told_once_and_so_is_its_end() -> None:
    ward = Ward()
    assert ward.looks(3, is_away=False) == []
    assert ward.looks(100, is_away=True) == ["Redis does not answer (Connection refused.); still trying"]
    assert ward.looks(100, is_away=False) == ["Redis answers again"]
    assert len(ward.looks(TOLD_AFTER_LOOKS, is_away=True)) == 1


def test_a_single_look_that_fails_is_not_worth_a_word() -> None:
    ward = Ward()
    for _ in range(3):
        assert ward.looks(TOLD_AFTER_LOOKS - 1, is_away=True) == []
        assert ward.looks(1, is_away=False) == []


def test_a_redis_that_nobody_started_is_named_with_the_reason_and_without_its_password() -> None:
    said: list[str] = []
    url = "redis://user:hidden@127.0.0.1:9/0"
    telling = Telling(looking(url), server=server_in_words(url, is_embedded=False), say=said.append)
    for _ in range(TOLD_AFTER_LOOKS):
        with pytest.raises(Unavailable):
            telling()
    assert len(said) == 1
    assert said[0].startswith("the Redis of LOOM_REDIS_URL at 127.0.0.1:9 does not answer (")
    assert "refused" in said[0]
    assert "hidden" not in said[0]


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("redis://", "localhost:6379"),
        ("rediss://u:hidden@h:1/2?password=hidden", "h:1"),
        ("unix://u:hidden@/run/r.sock?password=hidden", "/run/r.sock"),
    ],
)
def test_a_server_is_named_by_where_it_is(url: str, where: str) -> None:
    assert server_in_words(url, is_embedded=False) == f"the Redis of LOOM_REDIS_URL at {where}"
    assert server_in_words(url, is_embedded=True) == f"the embedded server at {where}"
