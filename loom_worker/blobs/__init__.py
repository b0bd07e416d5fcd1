"""The bytes of large results: all of them on disk, those used recently in Redis too.

blobs.py stores and reads them, compressed and checked. tier.py says what a tier is and what can go wrong with it.
disk.py and memory.py, with its ``*.lua``, are the two tiers. derived.py keeps files made from blobs, which can be made
again. counters.py counts what happened.
"""
