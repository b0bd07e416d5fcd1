"""Facts of models that are known, from models.json: how much they take and write, and what they can do."""

import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from loom_worker.core.values.agents import OWN_PROTOCOL, ModelChoice, provider_and_model
from loom_worker.core.values.json import Json
from loom_worker.llm.presets import preset_at
from loom_worker.llm.prices import nearest, plain_name, price_of

MEDIA = frozenset({"images", "files"})


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """One model; None: not known."""

    context_tokens: int | None = None
    max_output_tokens: int | None = None
    can: tuple[str, ...] = ()
    """Some of tools, images, files, thinking, json_schema."""


def known(model_name: str) -> ModelFacts | None:
    """A model's facts by its name in Loom or with its provider before it; a dated snapshot has those of its family."""
    return nearest(_facts(), model_name) or nearest(_facts(), f"anthropic/{plain_name(model_name)}")


def sees(chosen: ModelChoice, address: str | None) -> frozenset[str]:
    """Kinds of media that a resolved model is shown: images, files.

    Of a model that is not known only one on a machine of the user's own is taken to see nothing.

    Args:
        address: where it is asked; None: at its provider's own.

    Raises:
        BadSettings: it is no address.
    """
    provider, facts = f"{chosen.provider}", known(chosen.name)
    found = MEDIA if facts is None else MEDIA & frozenset(facts.can)
    if chosen.can_see:
        found |= {"images"}
    elif chosen.can_see is not None or provider == "scripted" or (facts is None and chosen.is_local):
        return frozenset()
    if provider in OWN_PROTOCOL:
        return found
    return found if preset_at(provider, address).files else found - {"files"}


def all_of(provider: str) -> tuple[str, ...]:
    """The known models of a provider, as provider/model."""
    return tuple(name for name in _facts() if name.startswith(f"{provider}/") and not name.endswith("*"))


def described(model_id: str) -> Json:
    """A model, named as provider/model, in the form of the HTTP API."""
    name = ModelChoice(*provider_and_model(model_id)).name
    price = price_of(name)
    prices = price and {kind: float(usd) for kind, usd in asdict(price.tokens).items()}
    return {"id": model_id, "object": "model", **asdict(known(name) or ModelFacts()), "prices": prices}


@cache
def _facts() -> dict[str, ModelFacts]:
    models = json.loads(Path(__file__).with_name("models.json").read_text(encoding="utf-8"))["models"]
    return {name: ModelFacts(**facts | {"can": tuple(facts["can"])}) for name, facts in models.items()}
