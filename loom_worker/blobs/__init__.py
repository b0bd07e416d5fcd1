"""The bytes of large results: all of them on disk, the recently used ones in Redis too.

``blobs`` stores and reads them, compressed and checked. ``tier`` is the interface of a tier, ``disk`` and ``memory``
(with its ``*.lua``) are the two. ``derived`` keeps files made from blobs, which can be made again.
"""
