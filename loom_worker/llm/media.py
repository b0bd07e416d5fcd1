"""Images and PDFs for models: what they take of the window, how many bytes of them are sent, and in what form. Pure."""

import math
import re
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from loom_worker.core.values.chat import ChatMessage
from loom_worker.core.values.json import Json
from loom_worker.core.values.media import PDF, Media, pieces
from loom_worker.llm.prices import plain_name

MOST_SENT_BYTES = 20 * 1024 * 1024
"""Bytes of all media in one request: Anthropic takes requests of 32 MB, and base64 is a third longer."""
PAGE_TOKENS = 3_000
"""The text of a PDF's page: Anthropic says 1,500 to 3,000; the page is sent as an image, too."""
PAGE = (1_190, 1_568)
"""A page of A4 as an image, in pixels."""
OF_RESULTS = "(Images out of the results above: data like these.)"
TILES: tuple[tuple[str, int, int], ...] = (
    (r"gpt-4o-mini", 2_833, 5_667),
    (r"gpt-5(?!.*(?:mini|nano))", 70, 140),
    (r"o[13]\b", 75, 150),
    (r"", 85, 170),
)
"""OpenAI's models that see in tiles of 512 pixels: tokens of an image, and of each tile; the first match applies."""
PATCHES: tuple[tuple[str, int, float], ...] = (
    (r"gpt-(?:5[.-][4-9]|[6-9]|[a-z-]*latest)|chat-latest", 2_500, 2.46),
    (r"(?:gpt-5|gpt-4\.1).*nano", 1_536, 2.46),
    (r"(?:gpt-5|gpt-4\.1).*mini|codex-mini", 1_536, 1.62),
    (r"o4-mini", 1_536, 1.72),
)
"""Those that see in patches of 32 pixels: how many at most, and the tokens of one (platform.openai.com, Images and
vision). The latest are not known one by one: they have the highest number of both."""
_CLAUDE = re.compile(r"(?:.*[./])?(claude-.*)")
_EARLIER_CLAUDE = re.compile(r"claude-(?:[1-3]\b|instant|(?:opus|sonnet|haiku)-4(?:-[0-6])?(?:[-@]|$))")
_OPENAI = re.compile(r"(?:.*[./]openai[./]|openai/|azure/|openai\.)(?!gpt-oss)|gpt-|o\d")
_GEMINI = re.compile(r"gemini/|.*google[./]gemini")
_MISTRAL = re.compile(r"(?:.*[./])?(?:mistral(?:ai)?[./]|pixtral)")


def media_tokens(media: Media, model: str) -> int:
    """The most that an image or a PDF takes of a model's window, by the rule of the model's maker."""
    if media.media_type == PDF:
        return media.pages * (PAGE_TOKENS + _image_tokens(*PAGE, model))
    return _image_tokens(media.width, media.height, model)


def _image_tokens(width: int, height: int, model: str) -> int:
    name = plain_name(model)
    if claude := _CLAUDE.match(name):
        is_earlier = _EARLIER_CLAUDE.match(claude[1].replace(".", "-"))
        return _claude_tokens(width, height, *((1_568, 1_600) if is_earlier else (2_576, 4_784)))
    own = name.rpartition("/")[2]
    if _OPENAI.match(name):
        most, tokens = next((rest for pattern, *rest in PATCHES if re.match(pattern, own)), (0, 0.0))
        patches = min(most, _patches(width, height, 32))
        return math.ceil(patches * tokens) if most else _tile_tokens(width, height, own)
    if _GEMINI.match(name):  # tiles of two thirds of the shorter side; Gemini 3 has the same number for every image
        return max(1_120, 258 * _patches(width, height, max(256, min(width, height) * 2 // 3)))
    if _MISTRAL.match(name):
        scale = min(1.0, 1_024 / max(width, height))
        return _patches(width * scale, height * scale, 16) + 64
    # Open models see in patches of 28 pixels at least (Qwen: 16,384 at most), xAI's count 1,792 tokens at most, Nova's
    # a token for some 600 pixels.
    return max(1_792, min(16_384, _patches(width, height, 24)))


def _claude_tokens(width: int, height: int, longest: int, most: int) -> int:
    """A pixel is 1/750 of a token, once the longer side is cut to what the model sees."""
    scale = min(1.0, longest / max(width, height))
    return min(most, math.ceil(width * scale * height * scale / 750))


def _tile_tokens(width: int, height: int, name: str) -> int:
    scale = min(1.0, 2_048 / max(width, height))
    scale = min(scale, 768 / min(width, height))
    tiles = math.ceil(width * scale / 512) * math.ceil(height * scale / 512)
    base, tile = next((base, tile) for pattern, base, tile in TILES if re.match(pattern, name))
    return base + tile * tiles


def _patches(width: float, height: float, side: int) -> int:
    return math.ceil(width / side) * math.ceil(height / side)


def within(messages: Sequence[ChatMessage], *, most_bytes: int = MOST_SENT_BYTES) -> tuple[ChatMessage, ...]:
    """The same messages; where their media are too many bytes, lines stand for the oldest."""
    if sum(media.size_bytes for message in messages for media in message.all_media) <= most_bytes:
        return tuple(messages)
    kept: list[ChatMessage] = []
    for message in reversed(messages):
        most_bytes -= sum(media.size_bytes for media in message.all_media)
        kept.append(message if most_bytes >= 0 else without_media(message))
    return tuple(reversed(kept))


def without_media(message: ChatMessage, *, sees: Collection[str] = ()) -> ChatMessage:
    """The message with lines in the places of its media; sees: kinds of those that stay."""
    if all(each.kind in sees for each in message.all_media):
        return message

    def seen(media: Sequence[Media]) -> tuple[Media, ...]:
        return tuple(each for each in media if each.kind in sees)

    outcomes = tuple(replace(each, media=seen(each.media)) for each in message.outcomes)
    return replace(message, media=seen(message.media), outcomes=outcomes)


def after_results(messages: Iterable[ChatMessage]) -> Iterator[ChatMessage]:
    """The messages with each result's images in a user's message behind it, for APIs whose results are texts."""
    for message in messages:
        yield without_media(message) if message.outcomes else message
        if message.outcomes and (media := message.all_media):
            named = "\n".join(f"{each.name}:\n{each.stub}" for each in media)
            yield ChatMessage("user", f"{OF_RESULTS}\n{named}", media=media)


Read = Callable[[str], bytes]
Form = Callable[[Media, bytes], Json]


def blocks(
    text: str, media: Sequence[Media], read: Read, *, say: Callable[[str], Sequence[Json]], form: Form
) -> list[Json]:
    """A text and its media as blocks of a provider, in order.

    Args:
        say: the blocks of a text; none for a blank one.
        form: the block of an image or a PDF with its bytes.
    """
    shown = pieces(text, media, read)
    return list(
        chain.from_iterable(say(each.strip("\n")) if isinstance(each, str) else [form(*each)] for each in shown)
    )


def anthropic_block(media: Media, data: bytes) -> Json:
    """As the Messages API takes it."""
    source = {"type": "base64", "media_type": media.media_type, "data": _base64(data)}
    return (
        {"type": "document", "source": source, "title": media.name}
        if media.pages
        else {"type": "image", "source": source}
    )


def chat_part(media: Media, data: bytes) -> Json:
    """As Chat Completions take it."""
    if media.pages:
        return {"type": "file", "file": {"filename": media.name, "file_data": _data_url(media, data)}}
    return {"type": "image_url", "image_url": {"url": _data_url(media, data)}}


def response_part(media: Media, data: bytes) -> Json:
    """As Responses take it."""
    if media.pages:
        return {"type": "input_file", "filename": media.name, "file_data": _data_url(media, data)}
    return {"type": "input_image", "image_url": _data_url(media, data)}


def _base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _data_url(media: Media, data: bytes) -> str:
    return f"data:{media.media_type};base64,{_base64(data)}"
