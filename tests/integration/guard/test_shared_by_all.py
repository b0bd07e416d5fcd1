"""Breakers and rates of several processes and many clients, on one real Valkey."""

import subprocess
import sys
import time

import pytest

from loom_worker.core.values.tools import Rate
from loom_worker.guard.limits import BreakerPolicy, Breakers, RateLimiter
from tests.support.at_once import at_once
from tests.support.until import until

pytestmark = [pytest.mark.heavy, pytest.mark.integration]

RATE = Rate(5, 0.05)
FAILING = """
import sys, redis
from loom_worker.guard.limits import Breakers
breakers = Breakers(redis.Redis.from_url(sys.argv[1], decode_responses=True))
print(breakers.permit("x").state)
for _ in range(5):
    breakers.failed("x")
"""


def failing_process(url):
    done = subprocess.run([sys.executable, "-c", FAILING, url], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_what_two_processes_saw_fail_all_leave_alone(valkey_server, valkey):
    assert failing_process(valkey_server.url) == "closed"
    assert Breakers(valkey).permit("x").state == "closed"
    assert failing_process(valkey_server.url) == "closed"
    assert Breakers(valkey).permit("x").state == "open"
    assert failing_process(valkey_server.url) == "open"


def test_a_breaker_lives_through_its_whole_life_in_real_time(valkey):
    breakers = Breakers(valkey, policy=BreakerPolicy(failures=2, open_s=0.05, max_open_s=0.08))
    breakers.failed("x")
    breakers.failed("x")
    assert breakers.permit("x").state == "open"
    until(lambda: breakers.states()["x"] == "half-open", 5.0, "half-open")
    breakers.failed("x", breakers.permit("x", probe_s=9).token)
    assert breakers.open_now(["x"])["x"] > 0.05
    for _ in range(2):
        probe = until(lambda: breakers.permit("x").token, 5.0, "a probe")
        breakers.succeeded("x", probe)
    assert breakers.states() == {}


def test_a_probe_of_a_worker_that_died_is_taken_over(valkey):
    breakers = Breakers(valkey, policy=BreakerPolicy(failures=1, open_s=0.02))
    breakers.failed("x")
    until(lambda: breakers.permit("x", probe_s=0.1).token, 5.0, "the probe that nobody hears of again")
    assert breakers.permit("x").state == "open"
    assert until(lambda: breakers.permit("x").token, 5.0, "another probe")


def test_many_clients_together_never_exceed_the_rate(valkey_server, valkey):
    pairs = []

    def client(_number):
        with valkey_server.client() as own:
            rates = RateLimiter(own)
            while len(pairs) < 40:
                before_s = time.monotonic()
                if rates.take("x", RATE).wait_s == 0:
                    pairs.append((before_s, time.monotonic()))

    at_once(client, range(8))
    granted = sorted(pairs, key=lambda pair: pair[1])
    # Each was granted between its two times, so six of them span at most from the earliest first to the latest last.
    sixes = [granted[n : n + RATE.calls + 1] for n in range(len(granted) - RATE.calls)]
    spans_s = [max(last_s for _, last_s in six) - min(first_s for first_s, _ in six) for six in sixes]
    assert min(spans_s) >= RATE.per_s


def test_clients_that_wait_all_get_through(valkey_server, valkey):
    def client(_number):
        with valkey_server.client() as own:
            RateLimiter(own).wait("x", RATE, at_most_s=10.0, pause=time.sleep)
            return time.monotonic()

    began_s = time.monotonic()
    assert max(at_once(client, range(16))) - began_s >= 3 * RATE.per_s
