"""Every kind of event is in the metrics of a running Loom, and nothing takes it out again."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.conftest import AGENTS
from tests.support.agents import written
from tests.support.exposition import Scrape, scrape
from tests.support.messages_server import MessagesServer, Say, failure
from tests.support.messages_wire import WireCall
from tests.support.metric_names import declared, expressions, family_of, selected
from tests.support.system import System, plain_agent
from tests.support.until import BUSY, until, within
from tests.support.webhook_receiver import WebhookReceiver

pytestmark = [pytest.mark.journey, pytest.mark.heavy, pytest.mark.takes(45)]

USED = {"input_tokens": 1000, "output_tokens": 100}
MODEL = "claude-watched"
SESSION = "maria-0711"
POINTS = "turn.ending,turn.committing,turn.ended"


def is_at_ease(system: System) -> bool:
    return not system.rows("SELECT 1 FROM memory WHERE due_ms IS NOT NULL OR held_by IS NOT NULL")


@pytest.fixture
def own_system(server: MessagesServer, library: Path, tmp_path: Path) -> Iterator[System]:
    """A Loom in which no turn of another test can still be counted: what ended may be counted a second later."""
    environ = {
        "ANTHROPIC_BASE_URL": server.url,
        "LOOM_AGENTS_DIR": written(tmp_path / "agents", {"watched": AGENTS["watched"]}),
        "LOOM_MODEL": MODEL,
        "LOOM_PATTERNS_DIR": str(library),
        "LOOM_PATTERNS_SHIPPED": "0",
        "LOOM_ALLOW_PRIVATE_WEBHOOKS": "1",
    }
    with System(tmp_path / "home", **environ) as system:
        yield system


def test_a_turn_shows_in_every_metric_that_it_concerns(server: MessagesServer, own_system: System) -> None:
    system = own_system
    before = scrape(system)
    with WebhookReceiver() as receiver:
        calls = [WireCall("toolu_1", "count", {"n": 1}), WireCall("toolu_2", "count", {"n": -1})]
        server.then(Say("", calls, model=MODEL, usage=USED), Say("Two.", model=MODEL, usage=USED))
        asked = "My card is 4111 1111 1111 1111. What comes after 1?"
        first = system.ended(system.submit(SESSION, asked, agent="watched", webhook=receiver.url))
        assert (first["status"], len(first["tool_calls"])) == ("completed", 2)
        server.then(Say("Three.", model=MODEL, usage=USED))
        assert system.ended(system.submit(SESSION, "And after that?", agent="watched"))["status"] == "completed"
        until(lambda: is_at_ease(system), 60, "the first turn is compressed")
        server.then(failure(401, "authentication_error", "invalid x-api-key"))
        third = system.ended(system.submit(SESSION, "And now?", agent="watched", webhook=receiver.url))
        assert (third["status"], third["reason"]) == ("failed", "provider")
        receiver.wait_for(2, timeout_s=60)
    until(lambda: is_at_ease(system), 60, "nothing is to be compressed")

    def differences() -> dict[str, float]:
        return grown(before, scrape(system))

    expected = {
        "completed turns": 2,
        "failed turns": 1,
        "waits": 3,
        "first tokens": 2,
        "runs": 3,
        "input tokens": 3_000,
        "calls": 3,
        "unpriced": 3,
        "tools done": 1,
        "tools failed": 1,
        "tool times": 2,
        "scores": 2,
        "cards": 1,
        "webhooks": 2,
        "webhook times": 2,
        "misses": 3,
    }
    within(lambda: differences() == expected, 30 * BUSY)
    assert differences() == expected
    after = scrape(system)
    assert after.of("loom_memory_compressions_total") > before.of("loom_memory_compressions_total")
    assert after.of("loom_store_commit_seconds_count") > before.of("loom_store_commit_seconds_count")
    assert after.of("loom_llm_request_seconds_count", outcome="ok") >= 3 + before.of(
        "loom_llm_request_seconds_count", outcome="ok"
    )
    assert after.of("loom_llm_request_seconds_count", outcome="refused") > before.of(
        "loom_llm_request_seconds_count", outcome="refused"
    )
    values = {value for _, has in after.samples for _, value in has}
    assert [value for value in values if SESSION in value or first["id"] in value] == []


def grown(before: Scrape, after: Scrape) -> dict[str, float]:
    """What the turns have added, as far as nothing else can."""

    def by(name: str, **labels: str) -> float:
        return after.of(name, **labels) - before.of(name, **labels)

    return {
        "completed turns": by("loom_turns_total", status="completed", reason="none"),
        "failed turns": by("loom_turns_total", status="failed", reason="provider"),
        "waits": by("loom_turn_queue_wait_seconds_count"),
        "first tokens": by("loom_turn_first_token_seconds_count"),
        "runs": by("loom_turn_run_seconds_count"),
        "input tokens": by("loom_llm_tokens_total", model=MODEL, kind="input", purpose="turn"),
        "calls": by("loom_llm_calls_total", model=MODEL, purpose="turn"),
        "unpriced": by("loom_llm_unpriced_calls_total", model=MODEL),
        "tools done": by("loom_tool_calls_total", tool="count", status="completed"),
        "tools failed": by("loom_tool_calls_total", tool="count", status="failed"),
        "tool times": by("loom_tool_call_seconds_count", tool="count"),
        "scores": by("loom_judge_score_count", judge="watched-polite"),
        "cards": by("loom_guard_decisions_total", decision="input.card.redact"),
        "webhooks": by("loom_webhook_attempts_total", result="delivered"),
        "webhook times": by("loom_webhook_attempt_seconds_count"),
        "misses": by("loom_pattern_lookups_total", result="miss"),
    }


def test_all_that_alerts_and_dashboard_ask_for_is_served_and_promtool_agrees(system: System) -> None:
    text = scrape(system).text
    served = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    assert served == declared().keys()
    assert {family_of(name) for _, expression in expressions() for name in selected(expression)} <= served
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool: install the Debian package prometheus, or Prometheus' own archive")
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.heavy
def test_ends_of_turns_and_costs_are_exact_and_nothing_goes_back_whatever_is_killed_or_flushed(tmp_path: Path) -> None:
    environ = {"LOOM_AGENTS_DIR": plain_agent(tmp_path / "agents"), "LOOM_CRASHPOINTS": POINTS}
    environ["LOOM_MAX_ATTEMPTS"] = "9"  # a turn may be in each worker that dies
    with (
        MessagesServer(script=lambda _: Say("Done.", model="claude-haiku-4-5", usage=USED)) as server,
        System(tmp_path / "home", ANTHROPIC_BASE_URL=server.url, **environ) as system,
    ):
        turns = [system.submit(f"s{number}", "Go.") for number in range(12)]
        assert {system.ended(turn)["status"] for turn in turns} == {"completed"}
        died = system.home / "crashes"
        until(lambda: len(list(died.iterdir())) == 3, 60, "a worker died at each point")
        assert system.delete("/v1/sessions/s0").status == 204
        check_exact(system, turns=12)
        assert scrape(system).of("loom_turn_deaths_total") >= 2  # one had ended its turn

        lasting = scrape(system).only_growing()
        with system.redis() as client:
            client.flushall()
        assert system.ended(system.submit("s1", "Go."))["status"] == "completed"
        system.stop()
        system.start()
        assert system.ended(system.submit("s2", "Go."))["status"] == "completed"
        check_exact(system, turns=14)
        after = scrape(system).only_growing()
        assert {sample: value for sample, value in lasting.items() if after.get(sample, 0) < value} == {}


def check_exact(system: System, *, turns: int) -> None:
    """Ends of turns, and the sums of the ledger, are what they are at every moment."""
    found = scrape(system)
    assert found.of("loom_turns_total") == found.of("loom_turns_total", status="completed") == turns
    query = "SELECT sum(input_tokens), sum(output_tokens), sum(llm_calls), sum(cost_nano) / 1e9 FROM usage"
    ((sent, received, calls, cost_usd),) = system.rows(query)
    assert found.of("loom_llm_tokens_total", kind="input") == sent
    assert found.of("loom_llm_tokens_total", kind="output") == received
    assert found.of("loom_llm_calls_total") == calls
    assert found.of("loom_llm_cost_usd_total") == pytest.approx(cost_usd)
