"""Language models.

``model`` says what a model is; ``anthropic`` asks any server of the Messages API (``anthropic_request`` builds what
is sent, ``sse`` and ``anthropic_stream`` read what comes back, ``anthropic_errors`` and ``too_long`` what is refused,
``watched`` keeps the deadline, ``clean`` mends text); ``scripted`` and ``demo`` answer without network; ``retry`` tries
again; ``tokens`` counts and ``prices`` prices.
"""
