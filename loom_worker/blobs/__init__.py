"""The bytes of large results: on disk, and in Redis those used last.

blobs.py: keeps and reads them, checked; tier.py: what a tier is; disk.py and memory.py, with its ``*.lua``: the two
tiers; frame.py: compression; copies.py: what was made of a blob, to be made again at need; faults.py: what can go
wrong; counters.py: how often it did.
"""
