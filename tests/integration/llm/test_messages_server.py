"""The stand-in for the provider is held to its own promises."""

import json
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from tests.support.messages_server import MessagesServer, Say

pytestmark = pytest.mark.integration

HELLO = {"role": "user", "content": "hello"}
CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {}}]}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "ok"}]}


def post(url, messages, **fields):
    body = json.dumps({"model": "m", "max_tokens": 5, "messages": messages, **fields}).encode()
    request = urllib.request.Request(url + "/v1/messages", body, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "assistant", "content": "hi"}],
        [HELLO, CALL],
        [HELLO, CALL, HELLO],
        [HELLO, CALL, {"role": "assistant", "content": "x"}, RESULT],
        [HELLO, RESULT],
        [{"role": "user", "content": " "}],
        [{"role": "user", "content": []}],
        [{"role": "tool", "content": "x"}],
    ],
)
def test_what_the_real_server_refuses_is_refused(messages):
    with MessagesServer() as server:
        status, body = post(server.url, messages)
    assert status == 400
    assert json.loads(body)["error"]["type"] == "invalid_request_error"


def test_what_the_real_server_takes_is_answered():
    with MessagesServer() as server:
        status, body = post(server.url, [HELLO, CALL, RESULT])
        assert post(server.url, [HELLO], temperature=0.5)[0] == 400
    assert (status, "message_stop" in body) == (200, True)


def test_it_counts_as_it_is_told_and_refuses_what_is_above_its_window():
    script, count = lambda body: Say("yes"), lambda body: len(body["messages"][0]["content"])
    with MessagesServer(script=script, count=count, window_tokens=5) as server:
        taken, refused = post(server.url, [HELLO]), post(server.url, [{"role": "user", "content": "hello!"}])
    assert '"input_tokens": 5' in taken[1]
    assert refused[0] == 400
    assert json.loads(refused[1])["error"]["message"] == "prompt is too long: 6 tokens > 5 maximum"


def test_it_runs_as_a_process_and_tells_its_address():
    command = [sys.executable, "-m", "tests.support.messages_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            status, body = post(process.stdout.readline().strip(), [HELLO])
        finally:
            process.kill()
    assert (status, "echo:" in body) == (200, True)
