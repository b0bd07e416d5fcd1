"""What may come out of a queue: the messages that Loom and Celery send themselves, and nothing else.

Anyone who can reach Redis can put anything into a queue, and Celery trusts what it finds there: an envelope without
``properties`` ends the worker, a task it does not know is written into the log with all its content. So every message
is checked before Celery sees it. A wake-up that is lost this way is sent again by the sweep.
"""

import base64
import binascii
import inspect
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from kombu import serialization
from kombu.exceptions import ContentDisallowed, DecodeError

JSON = "application/json"
LARGEST_BYTES = 256 * 1024
"""Bytes of a task's message; Loom's own are under 4 KB. What processes answer to Flower may be larger."""
_LONGEST_TAG = 200
_EMBEDDED: Mapping[str, tuple[type, ...]] = {
    "callbacks": (list,),
    "errbacks": (list,),
    "chain": (list,),
    "chord": (dict,),
}
"""The headers of a task next to its arguments, each with its type unless it is null."""


class BadMessage(ValueError):
    """A message that is dropped; its text names what is wrong with it and repeats none of its content."""


def read(data: bytes | str) -> dict[str, Any]:
    """The envelope that lies in Redis; BadMessage: it is not JSON, or not an object."""
    try:
        envelope = _decode(data)
    except DecodeError as error:
        raise BadMessage("not JSON") from error
    if not isinstance(envelope, dict):
        raise BadMessage("not an object")
    return envelope


def _decode(data: bytes | str) -> Any:
    # kombu's decoder builds the types that a message names, and raises whatever their constructors raise; its registry
    # turns all of that into DecodeError.
    return serialization.loads(data, JSON, "utf-8", accept={JSON})  # type: ignore[no-untyped-call]  # kombu has no annotations


def check_envelope(envelope: dict[str, Any]) -> Any:
    """What is in it, decoded, if kombu can deliver it; BadMessage: it cannot."""
    properties = _field(envelope, "properties", dict)
    delivery = _field(properties, "delivery_info", dict)
    _field(delivery, "exchange", str)
    _field(delivery, "routing_key", str)
    if not 0 < len(_field(properties, "delivery_tag", str)) <= _LONGEST_TAG:
        raise BadMessage("no delivery_tag")
    if not isinstance(envelope.get("headers") or {}, dict):
        raise BadMessage("headers that are not an object")
    if (envelope.get("headers") or {}).get("compression"):
        raise BadMessage("compressed")
    if envelope.get("content-type") != JSON:
        raise BadMessage("not application/json")
    return _body(_field(envelope, "body", str), properties.get("body_encoding"))


def _field(values: Mapping[str, Any], name: str, kind: type) -> Any:
    value = values.get(name)
    if not isinstance(value, kind):
        raise BadMessage(f"no {name}")
    return value


def _body(body: str, encoding: object) -> Any:
    if encoding not in ("base64", None):
        raise BadMessage("an unknown body_encoding")
    try:
        content = base64.b64decode(body) if encoding else body.encode()
        return _decode(content)
    except (DecodeError, ContentDisallowed, binascii.Error, ValueError) as error:
        raise BadMessage("a body that cannot be decoded") from error


def check_task(envelope: dict[str, Any], content: Any, tasks: Mapping[str, Any]) -> None:
    """Let a call of one of these tasks pass, with arguments that it takes.

    Args:
        content: what ``check_envelope`` gave.
        tasks: by name, as Celery registers them.

    Raises:
        BadMessage: Celery would refuse it, log its content, or fail.
    """
    headers = envelope.get("headers") or {}
    name = headers.get("task")
    if not isinstance(name, str) or not name.startswith("loom.") or name not in tasks:
        raise BadMessage("no task of Loom's")
    if not isinstance(headers.get("id"), str) or type(headers.get("retries") or 0) is not int:
        raise BadMessage("no id, or a count of retries that is none")
    # Loom sends none of these; Celery would keep a message with a far time in memory until then.
    if any(headers.get(field) is not None for field in ("eta", "expires")):
        raise BadMessage("a time at which to run or expire")
    if headers.get("timelimit") not in (None, [None, None]):
        raise BadMessage("a time limit")
    if not isinstance(content, list) or [type(part) for part in content] != [list, dict, dict]:
        raise BadMessage("not [args, kwargs, embed]")
    args, kwargs, embed = content
    if any(embed.get(field) is not None and not isinstance(embed[field], kinds) for field, kinds in _EMBEDDED.items()):
        raise BadMessage("a malformed callback")
    _check_arguments(_signature(tasks[name].run), args, kwargs)


@cache
def _signature(task: Callable[..., object]) -> inspect.Signature:
    return inspect.signature(task)


def _check_arguments(signature: inspect.Signature, args: list[Any], kwargs: dict[str, Any]) -> None:
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        raise BadMessage("arguments that its task does not take") from error
    # The tasks take ids and small whole numbers; True is no number here.
    if any(type(value) is not signature.parameters[name].annotation for name, value in given.items()):
        raise BadMessage("arguments of another type")


def label(envelope: object) -> str:
    """What a log may call a message: its delivery tag, as far as it is there and harmless."""
    properties = envelope.get("properties") if isinstance(envelope, dict) else None
    tag = properties.get("delivery_tag") if isinstance(properties, dict) else None
    return printable(tag)


def printable(tag: object) -> str:
    """A delivery tag as a log may show it."""
    return tag if isinstance(tag, str) and re.fullmatch(r"[A-Za-z0-9._-]{1,64}", tag) else "without a usable tag"
