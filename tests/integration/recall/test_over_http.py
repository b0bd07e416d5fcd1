"""A model behind HTTP puts what a search found in order, and one that hangs keeps no search from answering."""

import threading

import pytest

from loom_worker.llm.anthropic import Anthropic
from loom_worker.llm.rerank import Reranker
from loom_worker.store.database import Database
from tests.support.messages_server import Hang, MessagesServer, Say
from tests.unit.memory.recall.made import Talk, Till, answer, apples, parts

pytestmark = [pytest.mark.heavy, pytest.mark.integration]


@pytest.fixture
def talk(database: Database) -> Talk:
    return apples(database)


def test_over_http_the_scores_of_a_server_order_what_was_found(talk: Talk) -> None:
    script = '```json\n[{"index": 2, "score": 8}]\n```'
    with MessagesServer(script=lambda _: Say(script, usage={"input_tokens": 900, "output_tokens": 20})) as server:
        till, model = Till(), Anthropic(model="claude-test", base_url=server.url)
        given = parts(talk.database, rerank=Reranker(model, till, 15.0))
        plain = answer(talk, "search_conversation", parts(talk.database), query="apple answer 7", promote=False)
        read = answer(talk, "search_conversation", given, query="apple answer 7", promote=False)
    assert read["ranked_by"] == "llm"
    assert [each["id"] for each in read["found"][:2]] == [plain["found"][1]["id"], plain["found"][0]["id"]]
    assert [each["score"] for each in read["found"][:2]] == [8.0, None]
    [(_, _, usage)] = till.charges
    assert (usage.input_tokens, usage.output_tokens) == (900, 20)
    assert server.requests[0]["max_tokens"] == 1000


def test_over_http_a_server_that_hangs_does_not_keep_the_search_from_answering(talk: Talk) -> None:
    release = threading.Event()
    with MessagesServer([Hang(release)]) as server:
        model = Anthropic(model="claude-test", base_url=server.url)
        given = parts(talk.database, rerank=Reranker(model, Till(), 0.3))
        read = answer(talk, "search_conversation", given, query="apple answer 7")
        release.set()
    assert read["ranked_by"] == "bm25"
    assert read["found"][0]["text"] == "apple answer 7"
