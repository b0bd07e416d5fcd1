"""What tool calls left behind beside the conversation: whole errors and whole results."""

from collections.abc import Callable
from dataclasses import dataclass

from loom_worker.store.errors import Errors
from loom_worker.values.blobs import DataReference


@dataclass(frozen=True, slots=True)
class Results:
    """Where they are."""

    errors: Errors
    open: Callable[[str, str], tuple[DataReference, bytes]]
    """(workspace, reference) to a large result, verified; NotFound."""
