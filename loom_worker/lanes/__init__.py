"""The order of each session's turns on Redis, and who runs them.

lanes.py and ``*.lua`` are the transitions of a lane, keys.py names the keys in Redis. lease_renewer.py renews a
process's leases and sends its heartbeat; readiness.py reads from the heartbeats which workers take no turns.
live_waits.py records which turns wait for the model.
"""
