"""Keeping secrets from other processes of the same user.

``process_env``: which process is started with which secrets, and which variables tools inherit.
``process``: a process hides its memory and what it was started with, and its environment forgets secrets.
``home_secrets``: secrets made once and kept in the home. ``private``: the files that tools must not touch.
``landlock``: a process gives up reading and changing files, and looking into other processes.
"""
