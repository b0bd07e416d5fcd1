"""What a call costs, from the file of LOOM_PRICES and the dated table in prices.json."""

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TypeVar

from loom_worker.core.fields import MISSING, Fields, InvalidField
from loom_worker.core.values.budgets import usd
from loom_worker.core.values.chat import Reply, Usage
from loom_worker.core.values.json import Json
from loom_worker.core.yaml_files import Unreadable, marked_documents

log = logging.getLogger(__name__)
T = TypeVar("T")

OLLAMA = "ollama/"
"""Prefix of the names of Ollama's models in Loom."""
A2A = "a2a/"
"""Prefix of the names of agents elsewhere."""
FREE = re.compile(rf"scripted|local/|vllm/|lmstudio/|{A2A}|{OLLAMA}(?!.*\bcloud\Z)")
"""Scripted models and those on the user's own machines cost nothing; Ollama's ``cloud`` models run elsewhere. Agents
elsewhere are paid for there."""
BEDROCK = re.compile(
    r"(?:arn:aws[\w-]*:bedrock:[\w-]*:\d*:[\w-]+/)?(?:[a-z-]{2,10}\.)?anthropic\.(claude-[\w-]+?)(?:-v\d+(?::\d+)?)?"
)
"""Bedrock's name for a model: the vendor's own name, after an optional ARN and region, before an optional version."""
PROFILE = ":application-inference-profile/"
BEDROCK_REGION = re.compile(r"(?:[a-z-]{2,10}\.)?anthropic\.(?=claude-)")
"""The part before the vendor's own name; it says which regions may run a model."""
UNIT = "USD per million tokens"
SMALL = "claude-haiku-5-5"
"""The current small model of the packaged table."""
NANO_PER_TOKEN = 1000
"""Billionths of a USD for a token at 1 USD per million."""
REGION = re.compile(r"(?:us|eu|apac|jp|au|ca|us-gov|global)\.")
"""The part before Bedrock's name of a model that says which regions may run it."""
SNAPSHOT = re.compile(r"[-@](?:\d{8}|\d{4}-\d\d-\d\d|latest)\Z")
"""What may follow a family's name; ``claude-opus-4-9`` is another family than ``claude-opus``, of unknown price."""


@dataclass(frozen=True, slots=True)
class TokenPrices:
    """USD per million tokens."""

    input: Decimal
    output: Decimal
    cache_write: Decimal
    cache_read: Decimal

    def cost_usd(self, usage: Usage) -> Decimal:
        """The price of these tokens, to a billionth."""
        millionths = sum(getattr(usage, f"{name}_tokens") * getattr(self, name) for name in self.__slots__)
        return usd(millionths / 1_000_000)


@dataclass(frozen=True, slots=True)
class Price:
    """A family's prices, and those of a whole call with a long prompt."""

    tokens: TokenPrices
    long_tokens: TokenPrices | None = None
    above_tokens: int = 0
    """A prompt of more tokens is a long one."""

    def cost_usd(self, usage: Usage) -> Decimal:
        """The price of one call."""
        prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        prices = self.long_tokens if self.long_tokens and prompt > self.above_tokens else self.tokens
        return prices.cost_usd(usage)


NOTHING = Price(TokenPrices(*[Decimal(0)] * 4))


def cost_usd(model: str, usage: Usage) -> Decimal | None:
    """Price one call (not a sum over several: some rates depend on the call's length); None if there is no price."""
    price = price_of(model)
    return None if price is None else price.cost_usd(usage)


def rates(model: str, input_tokens: int) -> tuple[Decimal, Decimal] | None:
    """The most that an input token and an output token of a call may cost, in billionths of a USD; None: no price.

    Args:
        input_tokens: of the call, at most.
    """
    price = price_of(model)
    if price is None:
        return None
    prices = price.long_tokens if price.long_tokens and input_tokens > price.above_tokens else price.tokens
    return max(prices.input, prices.cache_write, prices.cache_read) * NANO_PER_TOKEN, prices.output * NANO_PER_TOKEN


def has_price(model: str) -> bool:
    """False for a model whose calls cannot be counted in USD."""
    return rates(model, 0) is not None


def plain_name(model: str) -> str:
    """The vendor's own name of a model that Bedrock names; other names as they are."""
    found = BEDROCK.fullmatch(model)
    return found[1] if found else model


def small_model(name: str) -> str | None:
    """The small model of the provider of a model, named in the same way: for summaries and for ranking.

    Returns:
        None if none is known: for another vendor's model, a name that does not say which model it is, or a model that
        is no more expensive itself.
    """
    if not plain_name(name).startswith("claude-") or not is_cheaper(SMALL, name):
        return None
    region = BEDROCK_REGION.search(name)
    return f"{region[0]}{SMALL}" if region else SMALL


def is_cheaper(model: str, than: str) -> bool:
    """True if the first model costs less by the package's table, or the price of the other is not known."""
    own, other = _price(model), _price(plain_name(than))
    return own is not None and (other is None or own.tokens.input < other.tokens.input)


def with_cost(reply: Reply) -> Reply:
    """The reply with its usage priced by the model that was asked; of Bedrock's profiles only the server names it."""
    model = reply.served if PROFILE in reply.model else reply.model
    return replace(reply, usage=replace(reply.usage, cost_usd=cost_usd(model, reply.usage)))


def read(path: str | Path) -> tuple[str, Mapping[str, Price]]:
    """The day of a price file (docs/providers.md), such as ``2026-11-21``, and its prices by model.

    Raises:
        BadFile: names the file, the line and the model.
    """
    documents = marked_documents(Path(path))
    if len(documents) != 1:
        raise Unreadable(path, documents[1].line if documents else 0, "it must hold one document, with prices")
    document = documents[0]
    try:
        fields = _only(Fields(document.content, what="prices"), "as_of", "unit", "models", "source", "long_prompt")
        as_of, models = fields.required("as_of"), fields.under("models")
        date.fromisoformat(as_of)
        if fields.required("unit") != UNIT:
            raise InvalidField(fields.place_of("unit"), f"must be {UNIT!r}")
        if not models.names():
            raise InvalidField(models.place, MISSING)
        for name, line in document.repeated("models"):
            raise Unreadable(path, line, f"{name} has prices twice")
        return as_of, {name: _price_in(models.under(name)) for name in models.names()}
    except (InvalidField, ValueError) as error:
        place = error.place if isinstance(error, InvalidField) else ("as_of",)
        raise Unreadable(path, document.nearest_line(*place), str(error)) from error


def _only(fields: Fields, *known: str) -> Fields:
    for key in fields.names():
        if key not in known:
            raise InvalidField(fields.place_of(key), f"is none of {', '.join(known)}")
    return fields


def _price_in(fields: Fields) -> Price:
    rates = _rates(_only(fields, *TokenPrices.__slots__, "long_prompt"))
    if "long_prompt" not in fields:
        return Price(rates)
    long = _only(fields.under("long_prompt"), *TokenPrices.__slots__, "above_tokens")
    long.required("above_tokens")
    return Price(rates, _rates(long), long.whole("above_tokens") or 0)


def _rates(fields: Fields) -> TokenPrices:
    """The rates; those of the cache are those of the input unless they are given."""
    for name in ("input", "output"):
        fields.required(name)
    found = {name: fields.number(name, most=1e6) for name in TokenPrices.__slots__}
    rates = {name: found["input"] if rate is None else rate for name, rate in found.items()}
    return TokenPrices(**{name: Decimal(str(rate)) for name, rate in rates.items()})


_given: dict[str, Price] = {}


def use(path: str | None) -> None:
    """Let the prices of a file come before all others in this process; None: there is no file."""
    given = read(path)[1] if path else {}
    _given.clear()
    _given.update(given)


@cache
def warn_of(model: str) -> None:
    """Log, once a process, that a model has no price; of Bedrock's profiles only the reply tells it."""
    if not has_price(model) and PROFILE not in model:
        log.warning("no price of the model %s is known, so its cost is null: add it to the file of LOOM_PRICES", model)


@cache
def packaged() -> tuple[str, Mapping[str, Price]]:
    """The table in the package (``bench/price_table.py`` writes it)."""
    table = json.loads(Path(__file__).with_name("prices.json").read_bytes())
    return table["as_of"], {name: _of_entry(entry) for name, entry in table["models"].items()}


def _of_entry(entry: Json) -> Price:
    plain, long = entry, entry.get("long_prompt")
    return Price(_of_rates(plain), *((_of_rates(long), long["above_tokens"]) if long else ()))


def _of_rates(rates: Json) -> TokenPrices:
    found = (rates.get(name, rates["input"]) for name in TokenPrices.__slots__)
    return TokenPrices(*(Decimal(str(rate)) for rate in found))


def price_of(model: str) -> Price | None:
    """The first that fits: of the file, then nothing for what is free, then of the package."""
    plain = plain_name(model)
    names = (model, plain, SNAPSHOT.sub("", plain))
    provider = "anthropic/" if plain == model else "bedrock/"
    given = next((_given[key] for name in names for key in (provider + name, name) if key in _given), None)
    return given or (NOTHING if FREE.match(model) else _price(plain))


def _price(model: str) -> Price | None:
    return nearest(packaged()[1], model)


def nearest(table: Mapping[str, T], model: str) -> T | None:
    """The entry of a model in a table of the package; None if it has none.

    A name that ends with a star stands for all that begin so; the longest one applies. Azure serves OpenAI's models at
    OpenAI's prices, and Bedrock's names have no provider before them.
    """
    plain, maker = plain_name(model), model.partition("/")[0]
    names = [plain] if maker != model or plain != model else [plain, f"bedrock/{REGION.sub('', model, count=1)}"]
    names += [f"openai/{model.partition('/')[2]}"] if maker == "azure" else []
    for name in names:
        for exact in (name, SNAPSHOT.sub("", name)):
            if exact in table:
                return table[exact]
        begun = (name[:end] + "*" for end in range(len(name), name.find("/"), -1))
        if "/" in name and (star := next((each for each in begun if each in table), None)):
            return table[star]
    return None
