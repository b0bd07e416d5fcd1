"""Keeping secrets from other processes of the same user.

``process.py``: a process hides its memory and what it was started with, and its environment forgets secrets.
``landlock.py``: a process gives up reading some files, and looking into other processes.
"""
