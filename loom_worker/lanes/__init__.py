"""The order of each session's turns in Redis, and who runs them.

``lanes`` and ``*.lua`` are the transitions of a lane, ``keys`` names the keys in Redis, ``slots`` are the threads that
run lanes. ``lease_renewer`` renews a process's leases and sends its heartbeat, ``readiness`` finds in the heartbeats
which workers take no turns, and ``live_waits`` records which turns wait for the model.
"""
