"""Keeping secrets from other processes of the same user.

``process_env.py``: which process is started with which secrets, and which variables tools inherit.
``process.py``: a process hides its memory and what it was started with, and its environment forgets secrets.
``private.py``: the files that tools must not read. ``landlock.py``: a process gives up reading some files, and looking
into other processes.
"""
