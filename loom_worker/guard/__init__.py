"""Guards that keep faults and secrets from spreading.

``breaker`` stops calling what keeps failing, ``rate`` limits how often something is called, both for all workers
together through Redis; ``tolerant`` lets work go on if Redis does not answer; ``net/`` connects to hosts that others
name.

``redact`` removes secrets and personal data from texts, ``stream`` from texts that come piece by piece, and ``rails``
holds texts against guardrails. ``findings`` finds it all, also in disguise, by ``secrets`` (``vendor_keys`` knows
shapes and random values), ``personal``, ``phones`` and ``injection``.
"""
