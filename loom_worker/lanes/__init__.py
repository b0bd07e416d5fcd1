"""FIFO lanes on Redis.

keys.py names, lanes.py and *.lua the transitions, keeper.py keeps a process' leases alive, consuming.py tells from the
heartbeats who takes none.
"""
