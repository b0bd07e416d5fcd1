"""Write the packaged tables of prices and of what models can do anew: ``pip install genai-prices`` and run this.

Prices and windows are those of genai-prices (MIT), which names the makers' pages that it has them from; the lines of
Anthropic and of embeddings in ``prices.json`` are kept as they are. What models can do is not in it: ``FAMILIES`` says
that, from the makers' pages of models.
"""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from loom_worker.core.values.json import Json

FOLDER = Path(__file__).parents[1] / "loom_worker" / "llm"
PROVIDERS = {"google": "gemini", "x-ai": "xai", "aws": "bedrock"} | {
    name: name for name in ("openai", "azure", "mistral", "groq", "together", "openrouter", "deepseek")
}
RATES = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cache_write": "cache_write_mtok",
    "cache_read": "cache_read_mtok",
}
REGION = re.compile(r"(?:regional|[a-z-]{2,6}|global)\.(?=\w+\.)")
LEFT_OUT = re.compile(
    r"bedrock/(?:.*claude|gpt-)|(?:openai|azure)/(?:.*(?:ada|babbage|curie|davinci|whisper|tts|realtime|image|audio)|"
    r".*(?:transcribe|translate|live|moderation|instruct|0301|vision-preview|32k|16k))|gemini/.*(?:tts|live|image|claude)"
)
"""Claude has entries of its own, and these do not chat, or are gone."""
ALL = ("tools", "images", "files", "thinking", "json_schema")
FAMILIES: tuple[tuple[str, int | None, tuple[str, ...]], ...] = (
    (r"openai/gpt-oss|.*/openai/gpt-oss", 65_536, ("tools", "thinking", "json_schema")),
    (r"(?:openai|azure)/gpt-4\.1", 32_768, ("tools", "images", "files", "json_schema")),
    (r"(?:openai|azure)/(?:chatgpt-4o|gpt-4o)", 16_384, ("tools", "images", "files", "json_schema")),
    (r"(?:openai|azure)/(?:gpt-[5-9]|(?:gpt-[a-z-]*)?latest|chat-latest)", 128_000, ALL),
    (r"(?:openai|azure)/o[134](?!-(?:mini|preview))|(?:openai|azure)/o4-mini", 100_000, ALL),
    (r"(?:openai|azure)/o3-mini", 100_000, ("tools", "thinking", "json_schema")),
    (r"(?:openai|azure)/gpt-(?:3\.5|4)", 4_096, ("tools",)),
    (r"gemini/gemini-(?:2\.5|[3-9])", 65_536, ("tools", "images", "thinking", "json_schema")),
    (r"gemini/gemini-", 8_192, ("tools", "images", "json_schema")),
    (r"xai/grok-(?:[4-9]|build)", None, ("tools", "images", "thinking", "json_schema")),
    (r"mistral/magistral", None, ("tools", "thinking", "json_schema")),
    (r"mistral/(?:mistral-(?:large|medium|small)|ministral|pixtral)", None, ("tools", "images", "json_schema")),
    (r"deepseek/deepseek-(?:reasoner|v4|flash)", None, ("tools", "thinking")),
    (r"groq/meta-llama/llama-4", 8_192, ("tools", "images", "json_schema")),
    (r"bedrock/amazon\.nova-(?:lite|pro|premier|2)", 10_000, ("tools", "images", "files")),
    (r"claude-(?:fable|mythos|(?:opus|sonnet)-(?:[4-9]-[5-9]|5)|haiku-[4-9]|[a-z]+-latest)", 64_000, ALL),
    (r"claude-(?:opus-4-1)", 32_000, ALL),
    (r"claude-opus-4", 32_000, ("tools", "images", "files", "thinking")),
    (r"claude-(?:3-7|sonnet-4)", 64_000, ("tools", "images", "files", "thinking")),
    (r"claude-3-5", 8_192, ("tools", "images", "files")),
    (r"claude-3", 4_096, ("tools", "images", "files")),
)
"""Names to the most tokens of a reply, and what the models can do; the first match applies, and others call tools."""
SEE = re.compile(
    r"llama-?4-|llama-?3[.-]2-(?:11|90)b(?!.*text)|vision|[-/.]vl\b|pixtral|llava|gemma-?(?:3-(?!1b)|4)|qwen3\.[5-9]|"
    r"glm-[\d.]+v|kimi-k(?:2\.[5-9]|[3-9])|mistral-large-3|ministral-3-|nova-(?:2-)?(?:lite|pro|premier)|openai\.gpt-[5-9]",
    re.IGNORECASE,
)
"""Further models that are shown images, by a part of their names."""
MAKERS = {
    "anthropic/": "",
    "google/": "gemini/",
    "x-ai/": "xai/",
    "mistralai/": "mistral/",
    "amazon/": "bedrock/amazon.",
}
WINDOWS = ((r"claude-mythos", 1_000_000), (r"claude-(?:3|opus-4|sonnet-4)", 200_000))
"""Those that genai-prices does not name."""


def main() -> None:
    """Write both files."""
    today, providers = datetime.now(UTC), import_module("genai_prices.data").providers
    kept = json.loads((FOLDER / "prices.json").read_text())
    own = {name: rates for name, rates in kept["models"].items() if "/" not in name or re.search("embed|voyage", name)}
    rows = {name: row for provider in providers for name, row in _rows(provider, today)}
    source = f"genai-prices {version('genai-prices')} for all with a provider's prefix, {today.date()}"
    head = kept | {"source": f"{kept['source'].partition(' | ')[0]} | {source}"}
    _write("prices.json", head, own | {name: rates for name, (rates, _) in rows.items()})
    claude = {model.id: model.context_window for each in providers if each.id == "anthropic" for model in each.models}
    windows = {f"anthropic/{name}": claude.get(name) for name in own if "/" not in name}
    windows |= {name: window for name, (_, window) in rows.items() if "embed" not in name}
    facts = {name: _facts(name.removeprefix("anthropic/"), window) for name, window in windows.items()}
    _write("models.json", {"as_of": str(today.date()), "source": source}, facts)


def _rows(provider: Any, at: datetime) -> Iterator[tuple[str, tuple[Json, int | None]]]:
    prefix = PROVIDERS.get(provider.id)
    for model in provider.models if prefix else ():
        price = model.get_prices(at)
        if getattr(price, "input_mtok", None) is None or model.deprecated:
            continue
        for name in dict.fromkeys((model.id, *_names(model.match))):
            plain = REGION.sub("", name) if prefix == "bedrock" else name
            if not LEFT_OUT.match(f"{prefix}/{plain}"):
                yield f"{prefix}/{plain}", (_price(price), model.context_window)


def _names(match: Any) -> Iterator[str]:
    """The names that a clause matches: as they are, or with a star for whatever follows."""
    for inner in (*getattr(match, "or_", ()), *getattr(match, "and_", ())):
        yield from _names(inner)
    if name := getattr(match, "equals", None):
        yield name
    if name := getattr(match, "starts_with", None):
        yield f"{name}*"


def _price(price: Any) -> Json:
    given = {name: getattr(price, rate, None) for name, rate in RATES.items()}
    given["output"] = given["output"] or 0
    tiers = {name: rate.tiers[-1] for name, rate in given.items() if hasattr(rate, "tiers")}
    plain = {name: float(getattr(rate, "base", rate)) for name, rate in given.items() if rate is not None}
    if not tiers:
        return plain
    long = plain | {name: float(tier.price) for name, tier in tiers.items()}
    return plain | {"long_prompt": {"above_tokens": min(tier.start for tier in tiers.values()), **long}}


def _facts(name: str, window: int | None) -> Json:
    own = _own(name)
    most, can = next((family[1:] for family in FAMILIES if re.match(family[0], own)), (None, ("tools",)))
    if SEE.search(name) and "images" not in can:
        can = ("tools", "images", *can[1:])
    window = window or next((tokens for prefix, tokens in WINDOWS if re.match(prefix, own)), None)
    return {"context_tokens": window, "max_output_tokens": most, "can": list(can)}


def _own(name: str) -> str:
    """A model of a gateway by its maker's own name."""
    found = re.fullmatch(r"openrouter/~?(\w[\w-]*/|)(.*)", name)
    if found is None:
        return name
    plain = MAKERS.get(found[1], found[1]) + found[2]
    if plain.startswith("claude-"):
        plain = re.sub(r"claude-([4-9](?:-\d)?)-([a-z]+)", r"claude-\2-\1", plain.replace(".", "-"))
    return plain


def _write(file: str, head: Json, models: Json) -> None:
    lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(row)}" for name, row in models.items())
    top = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items() if key != "models")
    (FOLDER / file).write_text(f'{{\n{top},\n  "models": {{\n{lines}\n  }}\n}}\n')


if __name__ == "__main__":
    main()
