"""What is special about Bedrock, without a server."""

import sys

import pytest

from loom_worker.core.errors import BadSettings
from loom_worker.core.values.chat import ChatMessage, Request
from loom_worker.llm.bedrock import Bedrock, BedrockServer
from loom_worker.llm.provider_errors import ErrorResponse, read_error


@pytest.mark.parametrize("missing", ["boto3", "botocore"])
def test_without_awss_packages_the_settings_are_bad_and_the_text_says_what_to_install(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(BadSettings, match=r"pip install boto3"):
        Bedrock(model="anthropic.claude-opus-4-6-v1")


def test_making_one_imports_nothing_of_awss(monkeypatch):
    pytest.importorskip("boto3", reason="the extra packages of bedrock are not installed")
    loaded = {name for name in sys.modules if name.startswith(("boto3.", "botocore."))}
    assert Bedrock(model="m", region="us-east-1").name == "m"
    assert {name for name in sys.modules if name.startswith(("boto3.", "botocore."))} == loaded


def test_the_body_has_the_version_that_all_models_take():
    body = BedrockServer(None, None).body(Request("s", (ChatMessage("user", "q"),)), "m")
    assert body["anthropic_version"] == "bedrock-2023-05-31"
    assert body["system"][0]["cache_control"] == {"type": "ephemeral"}


@pytest.mark.cases("shape", ["{}", "{}:http://internal.amazon.com/x", "com.amazon.coral.service#{}", "a#{}:b#c"])
@pytest.mark.cases("name", ["ThrottlingException", "throttlingException"])
def test_awss_name_of_an_error_is_understood_however_it_is_wrapped(shape, name):
    headers = {"x-amzn-errortype": shape.format(name)}
    assert read_error(429, {"message": "slow down"}, headers).kind == "rate_limit_error"


@pytest.mark.parametrize("headers", [{}, {"x-amzn-errortype": "NovelException"}])
def test_an_error_with_no_known_name_keeps_its_own(headers):
    assert read_error(418, {"type": "teapot"}, headers) == ErrorResponse(418, "teapot", "", headers)
