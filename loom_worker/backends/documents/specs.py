"""The three tools, as the model sees them."""

from loom_worker.core.values.chat import ToolSpec

MAX_LISTED = 100
MAX_FOUND = 20

_PATH = {"type": "string", "maxLength": 1000}
_PREFIX = _PATH | {"description": "Only documents whose path begins so, such as a folder: handbook/"}

LIST_DOCUMENTS = ToolSpec(
    "list_documents",
    "List the documents by path: kind, title, length; those that cannot be read with the reason.",
    {
        "type": "object",
        "properties": {
            "prefix": _PREFIX,
            "limit": {"type": "integer", "minimum": 1, "maximum": MAX_LISTED, "default": 50},
            "offset": {"type": "integer", "minimum": 0, "default": 0},
        },
        "additionalProperties": False,
    },
)
SEARCH_DOCUMENTS = ToolSpec(
    "search_documents",
    "Full-text search in all documents. Returns the passages that fit best, each with path, lines, page (PDF), heading "
    "and snippet; read_document shows what stands around them. Name path and page or lines when you quote.",
    {
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "minLength": 1,
                "maxLength": 2000,
                "description": "Words that the passage would use; any of them may match.",
            },
            "limit": {"type": "integer", "minimum": 1, "maximum": MAX_FOUND, "default": 8},
            "path_prefix": _PREFIX,
        },
        "required": ["query"],
        "additionalProperties": False,
    },
)
READ_DOCUMENT = ToolSpec(
    "read_document",
    "Show a document's text with line numbers (and page marks of a PDF), at most 12 KiB; the end says where to go on.",
    {
        "type": "object",
        "properties": {
            "path": _PATH | {"minLength": 1, "description": "As list_documents or search_documents give it."},
            "from": {"type": "integer", "minimum": 1, "description": "First line; default: the first."},
            "to": {"type": "integer", "minimum": 1, "description": "Last line; default: as many as fit."},
            "page": {"type": "integer", "minimum": 1, "description": "A page of a PDF, in place of from and to."},
            "skip": {"type": "integer", "minimum": 0, "description": "Characters of the first line to leave out."},
        },
        "required": ["path"],
        "additionalProperties": False,
    },
)
