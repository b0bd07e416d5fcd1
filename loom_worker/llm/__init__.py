"""Language models.

``model`` says what a model is, and wraps one so that a second stands in or a deleted session is no longer asked about,
and on a budget sets aside what a call can cost before it is made; ``retry`` repeats failed calls, stops calling a
provider that keeps failing, and measures them. ``http_model`` calls a server through a maker's SDK: ``conversation``
makes what was stored fit to be sent, ``response`` reads the bytes under a deadline, ``sse`` splits them into events,
``assembly`` is what puts a reply together, ``provider_errors`` translates errors and ``shaped`` asks for an answer of a
form by a tool. ``anthropic`` and ``bedrock`` are its adapters for the Messages API: ``anthropic_request`` builds the
request, ``anthropic_stream`` makes the reply; ``converse`` translates both for Bedrock's models that are not Claude.
``openai`` is that for all who speak OpenAI's formats: ``presets`` says
in which way each of them does, ``openai_chat`` and ``openai_responses`` build requests and replies. ``a2a`` lets an
agent elsewhere answer: ``a2a_http`` writes what it is sent and sends it, ``a2a_task`` puts together what it says.
``media`` counts images and PDFs, and has their
forms. ``sanitize`` mends text and JSON of a model, ``rerank`` lets a model rank patterns or messages, ``tokens`` counts
tokens, ``prices`` computes costs, ``catalog`` knows what models take and can do. ``embeddings`` says what an embedding
model is; ``embeddings_http`` asks one, ``embeddings_local`` computes on this machine.
"""
