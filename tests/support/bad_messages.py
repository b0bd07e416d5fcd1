"""What strangers put into Celery's queues: by name, made from a message that Loom itself would send."""

import base64
import copy
import json
from collections.abc import Callable
from typing import Any

Envelope = dict[str, Any]

SECRET = "hunter2-in-a-message"
"""Stands in all of them; no log may repeat it."""


def body(content: object) -> str:
    return base64.b64encode(json.dumps(content).encode()).decode()


def _changed(change: Callable[[Envelope], object]) -> Callable[[Envelope], Envelope]:
    def make(sound: Envelope) -> Envelope:
        envelope = copy.deepcopy(sound)
        envelope["headers"]["argsrepr"] = SECRET
        change(envelope)
        return envelope

    return make


def _call(args: object, kwargs: object, embed: object) -> Callable[[Envelope], object]:
    return lambda envelope: envelope.update(body=body([args, kwargs, embed]))


ENVELOPES: dict[str, Callable[[Envelope], Envelope]] = {
    "no properties": _changed(lambda it: it.pop("properties")),
    "properties that are text": _changed(lambda it: it.update(properties=SECRET)),
    "no delivery info": _changed(lambda it: it["properties"].pop("delivery_info")),
    "delivery info without a queue": _changed(lambda it: it["properties"].update(delivery_info={})),
    "no delivery tag": _changed(lambda it: it["properties"].pop("delivery_tag")),
    "a delivery tag that is a list": _changed(lambda it: it["properties"].update(delivery_tag=[SECRET])),
    "a delivery tag without end": _changed(lambda it: it["properties"].update(delivery_tag=SECRET * 1000)),
    "headers that are a list": _changed(lambda it: it.update(headers=[SECRET])),
    "compressed": _changed(lambda it: it["headers"].update(compression="application/x-gzip")),
    "pickle": _changed(lambda it: it.update({"content-type": "application/x-python-serialize"})),
    "yaml": _changed(lambda it: it.update({"content-type": "application/x-yaml"})),
    "no body": _changed(lambda it: it.pop("body")),
    "a body that is no base64": _changed(lambda it: it.update(body="%%%" + SECRET)),
    "a body that is no JSON": _changed(lambda it: it.update(body=base64.b64encode(b"{" + SECRET.encode()).decode())),
    "a body that builds a type": _changed(_call([{"__type__": "decimal", "__value__": SECRET}], {}, {})),
    "a body without end": _changed(lambda it: it.update(body=base64.b64encode(b"[" * 100_000).decode())),
    "a body of another encoding": _changed(lambda it: it["properties"].update(body_encoding="rot13")),
}
"""Those that kombu cannot deliver."""

CALLS: dict[str, Callable[[Envelope], Envelope]] = {
    "no headers": _changed(lambda it: it.update(headers=None)),
    "an unknown task": _changed(lambda it: it["headers"].update(task=SECRET)),
    "a task of Celery's": _changed(lambda it: it["headers"].update(task="celery.backend_cleanup")),
    "a task that is a list": _changed(lambda it: it["headers"].update(task=[SECRET])),
    "no id": _changed(lambda it: it["headers"].pop("id")),
    "retries that are text": _changed(lambda it: it["headers"].update(retries=SECRET)),
    "due in a thousand years": _changed(lambda it: it["headers"].update(eta="3026-01-01T00:00:00")),
    "an expiry that is no time": _changed(lambda it: it["headers"].update(expires=SECRET)),
    "a time limit": _changed(lambda it: it["headers"].update(timelimit=[1, SECRET])),
    "too many arguments": _changed(_call([SECRET] * 9, {}, {})),
    "an argument too few": _changed(_call([], {}, {})),
    "an argument of another type": _changed(_call([{"text": SECRET}], {}, {})),
    "an argument by an unknown name": _changed(_call([], {SECRET: 1}, {})),
    "no arguments": _changed(lambda it: it.update(body=body({"task": SECRET}))),
    "a callback that is text": _changed(_call(["0" * 32], {}, {"callbacks": SECRET})),
}
"""Those that kombu delivers and Celery cannot run."""

BYTES: dict[str, bytes] = {
    "empty": b"",
    "text": SECRET.encode(),
    "half a message": b'{"body": "' + SECRET.encode(),
    "no UTF-8": b"\xff\xfe\x00" + SECRET.encode(),
    "a list": json.dumps([SECRET]).encode(),
    "null": b"null",
    "a number": b"1e999",
    "brackets without end": b"[" * 100_000,
    "a type that cannot be built": json.dumps({"__type__": "decimal", "__value__": SECRET}).encode(),
}
"""Those that are no envelope at all."""


def all_of(sound: Envelope) -> dict[str, bytes]:
    """Every bad message there is, as it lies in Redis."""
    made = {name: json.dumps(make(sound)).encode() for name, make in {**ENVELOPES, **CALLS}.items()}
    return {**BYTES, **made, "huge": json.dumps({**sound, "padding": SECRET * 20_000}).encode()}
