"""Waiting for what clients submit, and reading its events, in coroutines on the web's event loop.

``waiter`` what clients can do · ``follower`` follows turns and runs for all who wait or read · ``sources`` what readers
get next · ``reports`` what turns wait for
"""
