"""Waiting for what clients submit, and reading its events, in coroutines on the web's event loop.

``waiter`` follows turns and runs · ``readers`` who reads them and waits for them · ``sources`` what readers get next ·
``reports`` what turns wait for
"""
