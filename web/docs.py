"""The OpenAPI document for people: one HTML page, everything in it escaped, nothing loaded from elsewhere."""

import json
from html import escape
from typing import Any

from loom_worker.core.values.json import Json

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
code, pre { font: 14px/1.4 ui-monospace, monospace; }
pre { background: #f4f4f6; padding: .6rem; overflow: auto; }
section { border-top: 1px solid #ddd; padding: .5rem 0; }
table { border-collapse: collapse; }
td, th { border: 1px solid #ddd; padding: .2rem .6rem; text-align: left; vertical-align: top; }
.method { font-weight: bold; color: #0b5; }
@media (prefers-color-scheme: dark) { body { background: #16181c; color: #ddd; } pre { background: #22252b; } }
"""


def render(document: Json) -> str:
    """The page, as HTML."""
    operations = [
        _operation(method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = [_schema(name, schema) for name, schema in document["components"]["schemas"].items()]
    info = document["info"]
    return "".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width"><title>Loom API</title>',
            f"<style>{STYLE}</style></head><body>",
            f"<h1>{escape(info['title'])} API {escape(info['version'])}</h1>",
            f"<p>{escape(info['description'])}</p>",
            '<p>For programs: <a href="/openapi.json">/openapi.json</a>.</p>',
            "<h2>Operations</h2>",
            *operations,
            "<h2>Schemas</h2>",
            *schemas,
            "</body></html>",
        )
    )


def _operation(method: str, path: str, operation: Json) -> str:
    parameters = [
        (each["name"], each["in"], each["schema"].get("type", ""), each.get("description", ""))
        for each in operation["parameters"]
    ]
    body = ""
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        schema = _link(content["schema"]) if kind == "application/json" else escape(kind)
        body = f"<p>Body: {schema}</p>"
    return "".join(
        (
            f'<section id="{escape(operation["operationId"])}">',
            f'<h3><span class="method">{escape(method.upper())}</span> <code>{escape(path)}</code></h3>',
            f"<p>{escape(operation['summary'])}.</p>",
            _table(("parameter", "in", "type", ""), parameters),
            body,
            _answers(operation["responses"]),
            "</section>",
        )
    )


def _answers(answers: Json) -> str:
    rows = []
    for status, answer in sorted(answers.items()):
        content = ", ".join(
            f"{escape(media_type)} {_link(each['schema']) if 'schema' in each else ''}"
            for media_type, each in answer.get("content", {}).items()
        )
        rows.append(f"<tr><td>{escape(status)}</td><td>{escape(answer['description'])}</td><td>{content}</td></tr>")
    return f"<table>{''.join(rows)}</table>"


def _schema(name: str, schema: Json) -> str:
    text = escape(json.dumps(schema, indent=2, ensure_ascii=False))
    return f'<section id="{escape(name)}"><h3>{escape(name)}</h3><pre>{text}</pre></section>'


def _link(schema: Json) -> str:
    name = escape(str(schema["$ref"]).rpartition("/")[2])
    return f'<a href="#{name}">{name}</a>'


def _table(heads: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    cells = ("".join(f"<td>{escape(str(cell))}</td>" for cell in row) for row in rows)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"
