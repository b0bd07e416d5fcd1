"""Guards that keep faults and secrets from spreading.

``breaker`` stops calling what keeps failing, ``rate`` limits how often something is called, both for all workers
together through Redis; ``tolerant`` lets work go on if Redis does not answer; ``redact`` removes secrets and personal
data from texts, and ``vendor_keys`` lists the keys' shapes; ``net/`` connects to hosts that others name.
"""
