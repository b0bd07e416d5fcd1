"""The models that an agent's file names: ``llm`` with its fallbacks, ``compressor_llm``, ``judge_llm``.

All raise InvalidField for a value that cannot be used.
"""

import re
from typing import get_args

from loom_worker.core.fields import Fields, present
from loom_worker.core.values.agents import PROVIDERS, ModelChoice, provider_and_model
from loom_worker.core.values.chat import Effort, Sampling, Thinking
from loom_worker.core.variables import BareUrl, without_password

LOOMS_OWN = frozenset(
    "model messages input instructions system stream stream_options tools tool_choice max_tokens max_completion_tokens "
    "max_output_tokens response_format text output_config store n include prompt_cache_key".split()
)
"""Members of a request that ``extra`` cannot replace."""


def answering(llm: Fields) -> ModelChoice:
    """The model that ``llm`` names, with those that stand in for it."""
    return model_choice(llm, fallbacks=tuple(_fallback(entry) for entry in llm.each("fallbacks", short="model")))


def beside(fields: Fields) -> ModelChoice:
    """A model beside the one that answers, as ``compressor_llm`` and ``judge_llm`` name it."""
    chosen = answering(fields)
    fields.keep_rest()
    return chosen


def model_choice(fields: Fields, *, fallbacks: tuple[ModelChoice, ...] = ()) -> ModelChoice:
    """The model that a block names, and how it is asked; one at an address of its own is OpenAI's unless it says so."""
    provider, model, url, secret = fields.choice("provider", PROVIDERS), fields.text("model"), *_access(fields)
    prefix, name = provider_and_model(model or "")
    if prefix and not name.strip():
        raise fields.invalid("model", "the name of a model", model)
    if url and not prefix:
        provider = provider or "openai"
    named = provider or prefix
    if named in ("bedrock", "scripted") and (url or secret):
        raise fields.invalid("base_url" if url else "api_key", f"nothing (the provider is {named})", url or "a secret")
    shares = {name: fields.number(name, most=most) for name, most in (("temperature", 2.0), ("top_p", 1.0))}
    whole = {"top_k": fields.whole("top_k"), "seed": fields.whole("seed", least=0)}
    sampling, window = Sampling(**present(**shares, **whole, extra=_extra(fields))), fields.whole("max_context_tokens")
    thinking, is_local = _thinking(fields), fields.flag("local")
    can_see = fields.flag("vision")
    return ModelChoice(provider, model, window, url, secret, fallbacks, thinking, sampling, is_local, can_see)


def stop_sequences(llm: Fields) -> tuple[str, ...] | None:
    """Texts before which a reply ends; ``stop`` is another name for them, and may be a single one."""
    stop = llm.get("stop")
    if stop is not None and llm.get("stop_sequences") is not None:
        raise llm.invalid("stop", "one list, this or stop_sequences,", "both")
    return (stop,) if isinstance(stop, str) else llm.texts("stop_sequences" if stop is None else "stop")


def _fallback(entry: Fields) -> ModelChoice:
    model, chosen = entry.required("model"), model_choice(entry)
    if "/" in model and chosen.named_provider is None:
        raise entry.invalid("model", "provider/model, with a provider of " + ", ".join(PROVIDERS), model)
    return chosen


def _access(fields: Fields) -> tuple[str | None, str | None]:
    """The address, and the name of the secret that is the key."""
    url, key, name = fields.optional("base_url"), fields.get("api_key"), None
    try:
        url = url and BareUrl().parse(url)
    except ValueError as error:
        raise fields.invalid("base_url", f"a URL, {BareUrl.expected},", without_password(url or "")) from error
    if key is not None:
        name = fields.under("api_key").text("secret") if isinstance(key, dict) else None
        if not re.fullmatch("[A-Za-z0-9_]+", name or ""):
            # It may be the key itself, so the error does not repeat it.
            needed = "{secret: NAME}, with the key as LOOM_SECRET_NAME in the environment,"
            raise fields.invalid("api_key", needed, "a text" if isinstance(key, str) else "something else")
    return url, name


def _thinking(fields: Fields) -> Thinking | None:
    if fields.get("thinking") is None:
        return None
    asked = fields.under("thinking")
    effort, budget_tokens = asked.choice("effort", get_args(Effort)), asked.whole("budget_tokens")
    if (effort is None) == (budget_tokens is None):
        raise fields.invalid("thinking", "either effort or budget_tokens", "both" if effort else "neither")
    return Thinking(effort, budget_tokens)


def _extra(fields: Fields) -> dict[str, object] | None:
    extra = fields.get("extra")
    if extra is None:
        return None
    if not isinstance(extra, dict) or not all(isinstance(key, str) for key in extra):
        raise fields.invalid("extra", "a mapping of further members of requests", extra)
    if own := sorted(LOOMS_OWN & extra.keys()):
        raise fields.invalid("extra", "members that Loom does not send itself", ", ".join(own))
    return extra
