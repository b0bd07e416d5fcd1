import pytest

from loom_worker.supervisor.ready import needs_key
from tests.support.http_server import serving


@pytest.mark.parametrize(("status", "is_needed"), [(200, False), (401, True), (403, False), (503, False)])
def test_only_a_401_says_that_a_key_is_needed(status: int, is_needed: bool) -> None:
    with serving(lambda exchange: exchange.answer(status, b"{}")) as url:
        assert needs_key(url) is is_needed


def test_where_nobody_answers_no_key_is_known_to_be_needed() -> None:
    assert not needs_key("http://127.0.0.1:9")
