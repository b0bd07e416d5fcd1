"""The front end: check the request, hand it to ``wiring.Front``, map errors to status codes.

``app`` assembles; ``sessions``, ``memory``, ``turns``, ``events``, ``catalog``, ``health``, ``metrics`` and ``pages``
are the views; ``auth``, ``host``, ``caller`` and ``doors`` decide who is served; ``strict_json``, ``check``, ``query``
and ``bodies`` read what clients send; ``answers`` and ``problems`` write what they get; ``openapi`` and ``docs``
describe it; ``serve``, ``connections``, ``loop``, ``channel`` and ``parser`` run it.
"""
