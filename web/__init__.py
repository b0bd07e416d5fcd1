"""The HTTP API: check the request, hand it to the service, map errors to status codes.

``app`` assembles. A file for each resource has its views, the models of its bodies and queries, and the schemas of its
answers: ``sessions``, ``memory`` (facts, too), ``turns``, ``events``, ``runs`` (and workflows), ``schedules``,
``results`` (errors, and large results), ``files``, ``agents`` (tools and versions, too),
``learned``, ``patterns``, ``workspaces``
(usage and the queue, too), ``deliveries`` (messages between agents, too), ``keys``, ``users`` (pairings, too),
``audit``, ``metrics`` (probes, too), ``a2a`` (the Agent2Agent protocol) and ``pages``. ``operation`` has the decorator
that declares a view; ``bodies`` and ``query`` read what clients send, by ``strict_json`` and ``check``; ``schemas``,
``openapi`` and ``docs`` describe it; ``answers`` and ``problems`` write what clients get. ``auth``, ``caller``,
``rate_limits`` and ``connection_limits`` decide who is served; ``serve``, ``http_connection``,
``http_request``, ``connections``, ``request_threads`` and ``detached`` (a request and its answer, with a thread or
without one) run it; ``long_polls`` and ``events`` wait without a thread.
"""
