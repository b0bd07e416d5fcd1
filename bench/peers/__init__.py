"""Systems that Loom is compared with, one file each: how it is started, how a client asks it, and what serves there.

Their packages are no dependencies of Loom. A file imports them only inside the functions that run in the interpreter
that has them; docs/figures.md says what to install.
"""
