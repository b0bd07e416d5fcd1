"""Events of the library, on a real Valkey and without one."""

import json
import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import redis

from loom_worker.core.metrics import PATTERN_RELOADS
from loom_worker.core.values.patterns import PatternUpdateEvent
from loom_worker.patterns.events import AT, CHANNEL, KEPT_S, MOST_ERRORS, LibraryEvents
from tests.support.counting import Counted
from tests.support.until import until

WAIT_S = 15.0
LOADED = PatternUpdateEvent(("sql/a", "sql/b"), (), (), 89.44, (), patterns=2)
CHANGED = PatternUpdateEvent(("sql/c",), ("sql/a",), ("sql/b",), 12.0, (), patterns=2)
FAILED = PatternUpdateEvent((), (), (), 3.0, ("sql/a.yaml:2: no name",), patterns=2)


@pytest.fixture
def heard(valkey: redis.Redis) -> Iterator[Any]:
    """What is published."""
    with valkey.pubsub(ignore_subscribe_messages=True) as channel:
        channel.subscribe(CHANNEL)
        channel.get_message(timeout=5)
        yield channel


@pytest.fixture(autouse=True)
def done(valkey: redis.Redis) -> Iterator[None]:
    """Nobody sends any more when the client is closed."""
    yield
    until(lambda: not senders(), WAIT_S, "all is sent")


def senders() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "loom-patterns-events"]


def message(heard: Any) -> Any:
    found = until(lambda: heard.get_message(timeout=0.2), WAIT_S, "a message")
    return json.loads(found["data"])


def test_each_event_is_published_as_it_is(valkey: redis.Redis, heard: Any) -> None:
    events = LibraryEvents(valkey, process="w1")
    events.publish(LOADED)
    assert message(heard) == {
        "type": "PatternUpdateEvent",
        "process": "w1",
        "added": ["sql/a", "sql/b"],
        "changed": [],
        "removed": [],
        "duration_ms": 89.4,
        "errors": [],
        "patterns": 2,
    }
    for event in (CHANGED, FAILED):
        events.publish(event)
    told = [message(heard) for _ in range(2)]
    assert [(each["added"], each["changed"], each["removed"]) for each in told] == [
        (["sql/c"], ["sql/a"], ["sql/b"]),
        ([], [], []),
    ]
    assert told[1]["errors"] == ["sql/a.yaml:2: no name"]


def test_reloads_are_counted_and_first_loads_are_not(valkey: redis.Redis, heard: Any, counted: Counted) -> None:
    one, two = LibraryEvents(valkey, process="w1"), LibraryEvents(valkey, process="w2")
    for events, event in ((one, LOADED), (one, CHANGED), (one, FAILED), (two, FAILED), (two, CHANGED)):
        events.publish(event)
        message(heard)
    assert counted(PATTERN_RELOADS) == {("ok",): 2, ("failed",): 1}


def test_a_good_reload_beside_a_complaint_that_stands_is_no_failed_one(
    valkey: redis.Redis, heard: Any, counted: Counted
) -> None:
    events = LibraryEvents(valkey, process="w1")
    standing = replace(CHANGED, errors=FAILED.errors)
    worse = replace(CHANGED, errors=(*FAILED.errors, "sql/b.yaml:1: no name"))
    for event in (replace(LOADED, errors=FAILED.errors), standing, worse, worse, standing, CHANGED, FAILED):
        events.publish(event)
        message(heard)
    assert counted(PATTERN_RELOADS) == {("ok",): 4, ("failed",): 2}


def test_an_error_is_one_short_line_in_the_log(
    valkey: redis.Redis, heard: Any, caplog: pytest.LogCaptureFixture
) -> None:
    LibraryEvents(valkey, process="w1").publish(
        replace(FAILED, errors=("sql/a\nCRITICAL all is lost\u202e: " + "x" * 9000,))
    )
    message(heard)
    (record,) = caplog.records
    assert record.message.isprintable()
    assert len(record.message) < 600


def test_the_log_has_one_line_a_load_and_a_warning_for_each_new_error(
    valkey: redis.Redis, heard: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    events = LibraryEvents(valkey, process="w1")
    for event in (LOADED, FAILED, FAILED, CHANGED, FAILED):
        events.publish(event)
    warning = (logging.WARNING, "pattern library: sql/a.yaml:2: no name")
    assert [(record.levelno, record.message) for record in caplog.records] == [
        (logging.INFO, "Pattern library loaded (2 patterns, 89 ms)"),
        (logging.INFO, "Pattern library reloaded (2 patterns, 3 ms)"),
        warning,
        (logging.INFO, "Pattern library reloaded (2 patterns, 3 ms)"),
        (logging.INFO, "Pattern library reloaded (2 patterns, 12 ms)"),
        (logging.INFO, "Pattern library reloaded (2 patterns, 3 ms)"),
        warning,
    ]
    for _ in range(5):
        message(heard)


def test_processes_that_live_are_listed_with_what_they_have_loaded_last(valkey: redis.Redis, heard: Any) -> None:
    for name in ("w2", "w1", "dead"):
        events = LibraryEvents(valkey, process=name)
        events.publish(LOADED)
        message(heard)
    events.publish(CHANGED)
    LibraryEvents(valkey, process="w2").publish(FAILED)
    for _ in range(2):
        message(heard)
    found = events.processes({"w1", "w2", "silent"})
    assert [(each["process"], each["patterns"], each["duration_ms"], each["errors"]) for each in found] == [
        ("w1", 2, 89.4, []),
        ("w2", 2, 3.0, ["sql/a.yaml:2: no name"]),
    ]
    assert all(each["loaded_at"].endswith("Z") for each in found)
    assert events.processes(()) == []
    assert 0 < valkey.ttl(AT + "w1") <= KEPT_S


def test_of_many_errors_redis_is_told_the_first_and_how_many_follow(valkey: redis.Redis, heard: Any) -> None:
    errors = tuple(f"sql/p{number}.yaml:1: broken" for number in range(MOST_ERRORS + 7))
    LibraryEvents(valkey, process="w1").publish(PatternUpdateEvent((), (), (), 1.0, errors, patterns=0))
    assert message(heard)["errors"] == [*errors[:MOST_ERRORS], "… and 7 more"]


def test_names_of_files_that_are_no_text_can_be_told(valkey: redis.Redis, heard: Any) -> None:
    error = b"sql/\xff.yaml:1: no".decode(errors="surrogateescape")
    LibraryEvents(valkey, process="w1").publish(PatternUpdateEvent((), (), (), 1.0, (error,), patterns=0))
    assert message(heard)["errors"] == [error]
