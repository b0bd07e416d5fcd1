"""Output that cannot be written: a full disk, say, behind a redirection."""

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import click


@contextmanager
def or_exit() -> Iterator[None]:
    """Say in one line that what the program says cannot be written, and exit with 1."""
    try:
        yield
    except OSError as error:
        if not _is_of_output(error):
            raise
        click.echo(f"loom: the output cannot be written: {error.strerror}", err=True)
        # What is left in the buffer goes nowhere, or the interpreter would try, and fail, again as it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _is_of_output(error: OSError) -> bool:
    """True if it arose while a command wrote what it has to say; any other is a bug, and shows."""
    return any(frame.f_code is click.echo.__code__ for frame, _ in traceback.walk_tb(error.__traceback__))
