"""The tools of an agent's memory, over real sessions."""

import json
import re

import pytest

from loom_worker.core.settings_tree import Settings, ToolSettings
from loom_worker.core.values.chat import ChatMessage, ToolOutcome, ToolUse
from loom_worker.core.values.json import Json
from loom_worker.memory.recall_tools import recall_tools
from loom_worker.store.database import Database
from loom_worker.tools.error_channel import summary
from loom_worker.tools.registry import Registry
from tests.unit.memory.recall.made import Talk, Told, answer, outcome, parts
from tests.unit.store.made import WORKSPACE


@pytest.fixture
def talk(questions: Told, settings: Settings, database: Database) -> Talk:
    return questions.copied_to(settings, database)


def test_without_swap_there_is_only_the_tool_that_keeps_facts_in_mind(database: Database) -> None:
    with_swap, without = (recall_tools(parts(database, has_swap=has_swap)) for has_swap in (True, False))
    assert [tool.spec.name for tool in without] == ["update_session_context"]
    assert {tool.spec.name for tool in with_swap} == {
        "update_session_context",
        "recall_conversation",
        "search_conversation",
        "clear_recalled_context",
    }
    assert all(tool.is_bounded for tool in with_swap)


@pytest.mark.cases(
    ("name", "arguments"),
    [
        ("recall_conversation", {}),
        ("recall_conversation", {"offset": -1}),
        ("recall_conversation", {"offset": 10**30}),
        ("recall_conversation", {"offset": 0, "limit": 51}),
        ("recall_conversation", {"offset": 0, "limit": 0}),
        ("search_conversation", {}),
        ("search_conversation", {"query": "x", "limit": 21}),
        ("search_conversation", {"query": []}),
        ("clear_recalled_context", {"all": True}),
        ("update_session_context", {}),
        ("update_session_context", {"goals": {"a": "one"}}),
    ],
)
def test_arguments_out_of_bounds_are_refused_before_anything_runs(
    database: Database, name: str, arguments: Json
) -> None:
    assert Registry(recall_tools(parts(database))).prepared(ToolUse("toolu_1", name, arguments)).error


def test_a_stretch_is_read_by_its_place_and_says_where_the_next_one_begins(talk: Talk) -> None:
    read = answer(talk, "recall_conversation", parts(talk.database), offset=3, limit=2)
    assert [(each["offset"], each["role"], each["text"]) for each in read["messages"]] == [
        (3, "assistant", "answer 1 about pear1"),
        (4, "user", "question 2 about apple2"),
    ]
    assert [each["id"] for each in read["messages"]] == talk.ids[3:5]
    assert read["messages"][0]["date"] == "2027-01-15 08:00"
    assert (read["total"], read["next_offset"]) == (20, 5)


def test_ten_messages_are_read_if_no_number_is_given_and_whole_numbers_may_be_floats(talk: Talk) -> None:
    given = parts(talk.database)
    assert len(answer(talk, "recall_conversation", given, offset=0)["messages"]) == 10
    assert len(answer(talk, "recall_conversation", given, offset=18.0, limit=5.0)["messages"]) == 2


@pytest.mark.parametrize("offset", [20, 10**9])
def test_beyond_the_end_there_is_nothing(talk: Talk, offset: int) -> None:
    read = answer(talk, "recall_conversation", parts(talk.database), offset=offset)
    assert (read["messages"], read["total"], read["next_offset"]) == ([], 20, None)


def test_what_has_left_the_context_is_recalled_and_what_is_in_it_is_not(talk: Talk) -> None:
    talk.leave(4)
    read = answer(talk, "recall_conversation", parts(talk.database), offset=2, limit=4)
    assert [each.get("is_in_context", False) for each in read["messages"]] == [False, False, True, True]
    assert talk.state.promoted == tuple(talk.ids[2:4])
    assert read["recalled"]["added"] == 2
    assert 0 < read["recalled"]["tokens"] < read["recalled"]["budget_tokens"] == 1000


def test_recalling_twice_adds_nothing_and_clearing_takes_all_out(talk: Talk) -> None:
    talk.leave()
    given = parts(talk.database)
    first, again = (answer(talk, "recall_conversation", given, offset=0, limit=3)["recalled"] for _ in range(2))
    assert (first["added"], again["added"]) == (3, 0)
    assert first["tokens"] == again["tokens"]
    assert [answer(talk, "clear_recalled_context", given)["cleared"] for _ in range(2)] == [3, 0]
    assert talk.state.promoted == ()


def test_more_than_the_budget_is_refused_in_words_the_model_can_act_on(talk: Talk) -> None:
    talk.leave()
    given = parts(talk.database, recalled=60)
    answer(talk, "recall_conversation", given, offset=0, limit=3)
    refused = outcome(talk, "recall_conversation", given, offset=3, limit=17)
    text = refused.content
    assert (refused.status, refused.code) == ("failed", "INVALID_INPUT")
    assert len(text) <= 100
    assert "of 60 free: smaller limit or clear_recalled_context" in text
    assert talk.state.promoted == tuple(talk.ids[:3])
    answer(talk, "clear_recalled_context", given)
    assert answer(talk, "recall_conversation", given, offset=3, limit=3)["recalled"]["added"] == 3


def test_the_longest_refusal_is_not_cut(talk: Talk) -> None:
    talk.leave()
    given = parts(talk.database, count=lambda text: 1_000_000 * text.count("UTC]"), recalled=1_500_000)
    refused = outcome(talk, "recall_conversation", given, offset=0, limit=2)
    assert summary(refused.content, refused.code) == (
        "Code INVALID_INPUT: 2000000 tokens, 1500000 of 1500000 free: smaller limit or clear_recalled_context"
    )


def test_a_message_that_could_never_be_recalled_can_still_be_read(talk: Talk) -> None:
    talk.say("long " * 3000, "Noted.")
    talk.leave()
    read = answer(talk, "recall_conversation", parts(talk.database), offset=20, limit=2)
    assert read["recalled"]["added"] == 1
    assert read["recalled"]["too_long"] == 1
    assert read["messages"][0]["text"].startswith("long long long")
    assert read["messages"][0]["text"].endswith("… (14999 characters)")


@pytest.mark.parametrize("letter", ["x", '"', ".\n", "\u0001", "😀", "你"], ids=repr)
def test_fifty_long_messages_are_one_answer_that_is_not_cut(database: Database, letter: str) -> None:
    talk = Talk(database)
    talk.say(*(f"{n} " + letter * 20_000 for n in range(49)), "short")
    done = outcome(talk, "recall_conversation", parts(database), offset=0, limit=50)
    assert 10_000 < len(done.content.encode()) < ToolSettings().reference_bytes
    assert "[cut:" not in done.content
    assert len(answer(talk, "recall_conversation", parts(database), offset=0, limit=50)["messages"]) == 50
    assert '"text":"short"' in done.content


def test_calls_and_their_results_are_read_too(database: Database) -> None:
    talk = Talk(database)
    use = ToolUse("toolu_1", "execute_sql", {"sql": "SELECT 7"})
    results = ToolOutcome("toolu_1", "execute_sql", "seven" + "x" * 5000)
    talk.tell(
        ChatMessage("user", "Count"), ChatMessage("assistant", "Looking.", tool_uses=(use,)),
        ChatMessage("tool", outcomes=(results,)),
    )  # fmt: skip
    texts = [each["text"] for each in answer(talk, "recall_conversation", parts(database), offset=0)["messages"]]
    assert texts[1] == 'Looking.\ncalled execute_sql({"sql": "SELECT 7"})'
    assert texts[2].startswith("result of execute_sql: sevenxxx")
    assert len(texts[2]) < 1100


def test_a_search_finds_recalls_and_tells_where_it_stands(talk: Talk) -> None:
    talk.leave()
    read = answer(talk, "search_conversation", parts(talk.database), query="What of pear7?", limit=1)
    assert read["ranked_by"] == "bm25"
    assert read["found"][0]["text"] == "answer 7 about pear7"
    assert (read["found"][0]["offset"], read["found"][0]["id"]) == (15, talk.ids[15])
    assert talk.state.promoted == (talk.ids[15],)
    around = answer(talk, "recall_conversation", parts(talk.database), offset=read["found"][0]["offset"], limit=1)
    assert around["messages"][0]["id"] == talk.ids[15]


def test_a_search_that_shall_not_recall_changes_nothing(talk: Talk) -> None:
    talk.leave()
    read = answer(talk, "search_conversation", parts(talk.database), query="pear7", promote=False)
    assert read["found"]
    assert read["recalled"]["added"] == 0
    assert talk.state.promoted == ()


def test_a_search_recalls_the_best_that_there_is_room_for_and_says_how_many_there_was_none_for(talk: Talk) -> None:
    talk.leave()
    given = parts(talk.database, recalled=40)
    read = answer(talk, "search_conversation", given, query="question about", limit=20)
    best = [each["id"] for each in read["found"][: read["recalled"]["added"]]]
    assert 0 < read["recalled"]["added"] < len(read["found"])
    assert read["recalled"]["no_room"] == len(read["found"]) - len(best)
    assert sorted(talk.state.promoted) == sorted(best)
    assert read["recalled"]["tokens"] <= 40
    again = answer(talk, "search_conversation", given, query="about pear7", limit=20)
    assert again["recalled"]["tokens"] <= 40


def test_what_is_found_comes_with_what_was_said_around_it_and_nothing_twice(talk: Talk) -> None:
    read = answer(talk, "search_conversation", parts(talk.database), query="What of pear7?", limit=1)
    [found] = read["found"]
    assert found["before"] == ["assistant: answer 6 about pear6", "user: question 7 about apple7"]
    assert found["after"] == ["user: question 8 about apple8", "assistant: answer 8 about pear8"]
    wide = answer(talk, "search_conversation", parts(talk.database), query="What of pear7?", limit=20)
    said = [
        text
        for each in wide["found"]
        for text in (*each.get("before", ()), f"{each['role']}: {each['text']}", *each.get("after", ()))
    ]
    assert len(said) == len(set(said))


@pytest.mark.parametrize("most", [150, 250, 400, 1000])
def test_an_answer_keeps_within_the_tokens_there_are_for_it(database: Database, most: int) -> None:
    talk = Talk(database)
    for n in range(30):
        talk.say(f"question {n} about apples " + "and so on " * 30, f"answer {n} about apples " + "and on " * 30)
    talk.leave()
    # A word counts as one and what JSON sets around it as more: nearer to what models count than words alone.
    given = parts(database, count=lambda text: len(re.findall(r"\w+|[^\w\s]", text)), answer=most, recalled=5000)
    for name, arguments in (("search_conversation", {"query": "apples"}), ("recall_conversation", {"offset": 3})):
        done = outcome(talk, name, given, **arguments)
        assert given.count(done.content) <= most
        read = json.loads(done.content)
        listed = read.get("found", read.get("messages"))
        assert listed
        assert listed[0]["text"]
        assert len(listed) + read.get("left_out", 0) == 10


@pytest.mark.cases("query", ["", " \n", "?!", "🎉🎉", "'", '"', "\x00", "-/@*()"], ids=repr)
def test_a_query_without_words_runs_nothing_and_says_so(talk: Talk, query: str) -> None:
    talk.leave()
    read = answer(talk, "search_conversation", parts(talk.database), query=query)
    assert (read["found"], "nothing was searched" in read["note"]) == ([], True)
    assert talk.state.promoted == ()


@pytest.mark.cases(
    "query",
    [
        "What's apple3's colour?",
        "apple3-road and/or apple3",
        "apple3@example.com",
        '"apple3" OR (pear* NEAR/2 x) NOT ^lane:',
        "apple3 🎉",
        "apple3 我下个月去北京",
        "apple3 " + "x'y\"z-*/@ " * 400,
        "apple3 AND",
        "{said}: apple3",
        "apple3\ud800",
        "apple3\x00",
    ],
    ids=lambda query: repr(query)[:20],
)
def test_a_hostile_query_finds_what_it_is_about(talk: Talk, query: str) -> None:
    read = answer(talk, "search_conversation", parts(talk.database), query=query)
    assert "question 3 about apple3" in [each["text"] for each in read["found"]]


def test_of_a_long_message_the_part_that_was_looked_for_is_shown(database: Database) -> None:
    talk = Talk(database)
    talk.say("filler " * 500 + "the key is under the mat " + "filler " * 500, "Noted.")
    text = answer(talk, "search_conversation", parts(database), query="key mat")["found"][0]["text"]
    assert "key is under the mat" in text
    assert len(text) <= 200


def test_no_session_sees_or_changes_another_one(talk: Talk) -> None:
    others = [Talk(talk.database, "s2"), Talk(talk.database, "s1", workspace="other")]
    for other in others:
        other.say("secret apple3 elsewhere", "secret pear3")
        other.leave()
    talk.leave()
    given = parts(talk.database)
    found = answer(talk, "search_conversation", given, query="secret apple3 pear3", limit=20)
    read = answer(talk, "recall_conversation", given, offset=0, limit=50)
    assert "secret" not in str(found) + str(read)
    assert read["total"] == 20
    for other in others:
        assert other.state.promoted == ()
        answer(other, "recall_conversation", given, offset=0)
    answer(talk, "clear_recalled_context", given)
    assert [other.state.promoted for other in others] == [tuple(other.ids) for other in others]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("search_conversation", {"query": "apple3"}), ("update_session_context", {"user": "Ada"})],
)
def test_a_session_that_was_deleted_meanwhile_is_told_of_in_plain_words(talk: Talk, name: str, arguments: Json) -> None:
    caller = talk.caller
    talk.sessions.delete(WORKSPACE, "s1")
    talk.say("a new session", "of the same name")
    [tool] = [each for each in recall_tools(parts(talk.database)) if each.spec.name == name]
    with pytest.raises(Exception, match=r"^The session is deleted\.$"):
        tool.run(arguments, caller)
