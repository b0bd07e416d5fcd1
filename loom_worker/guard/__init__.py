"""Guards that keep faults and secrets from spreading.

``limits`` stops calling what keeps failing, and limits how often something is called, for all workers together through
Redis; work goes on if Redis does not answer; ``net/`` connects to hosts that others
name.

``findings`` finds secrets and personal data, also in disguise, and removes them from texts, ``stream`` from texts that
come piece by piece, and ``rails`` holds texts against guardrails. It is all found by ``secrets`` (``vendor_keys`` knows
shapes and random values), ``personal``, ``phones`` and ``injection``.
"""
