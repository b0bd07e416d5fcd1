"""Language models.

``model`` says what a model is, and wraps one so that a second stands in or a deleted session is no longer asked about,
and on a budget sets aside what a call can cost before it is made; ``retry`` repeats failed calls, stops calling a
provider that keeps failing, and measures them. ``messages`` calls any server of the Messages API: ``conversation``
makes what was stored fit to be sent, ``anthropic_request`` builds the request, ``response`` reads the bytes under a
deadline, ``sse`` splits them into events, ``anthropic_stream`` makes the reply of them and ``anthropic_errors``
translates errors; ``anthropic``, ``bedrock`` and ``ollama`` are its adapters. ``a2a`` lets an agent elsewhere answer:
``a2a_http`` writes what it is sent and sends it, ``a2a_task`` puts together what it says. ``media`` counts
images and PDFs, and has their forms. ``sanitize`` mends text and
JSON of a model, ``rerank`` lets a model rank patterns or messages, ``tokens`` counts tokens, ``prices`` computes costs.
``embeddings`` says what an embedding model is; ``embeddings_http`` asks one, ``embeddings_local`` computes on this
machine.
"""
