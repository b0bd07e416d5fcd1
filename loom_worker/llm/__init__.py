"""Language models.

``model`` says what a model is; ``messages`` asks any server of the Messages API (``anthropic_request`` builds what is
sent, ``sse`` and ``anthropic_stream`` read what comes back, ``anthropic_errors`` and ``too_long`` what is refused,
``watched`` keeps the deadline, ``clean`` mends text), and ``anthropic``, ``bedrock`` and ``ollama`` say what is special
about one; ``scripted`` and ``demo`` answer without network; ``retry`` tries again, ``guarded`` leaves a provider alone
that keeps failing; ``rerank`` lets a model rank patterns or messages; ``tokens`` counts and ``prices`` prices.
"""
