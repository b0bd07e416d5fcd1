"""The HTTP API: check the request, hand it to the service, map errors to status codes.

``app`` assembles; ``sessions``, ``memory``, ``turns``, ``events``, ``errors``, ``blobs``, ``catalog``, ``patterns``,
``workspaces`` (and usage), ``keys``, ``pairings``, ``users``, ``facts``, ``audit``, ``metrics`` (probes, too), ``runs``
(and workflows), ``agent_messages``, ``agent_versions``, ``schedules``, ``learned``, ``a2a`` (the Agent2Agent protocol)
and ``pages`` are the views; ``auth``, ``caller``, ``rate_limits`` and ``connection_limits`` decide who is served;
``strict_json``, ``check``, ``query`` and ``bodies`` read what clients send; ``answers`` and ``problems`` write what
they get; ``openapi``, ``operations``, ``a2a_operations``, ``api_operation``, ``parameters``, ``request_schemas``,
``answer_schemas``, ``run_schemas``, ``schedule_schemas``, ``agent_version_schemas``, ``learned_schemas``,
``fact_schemas``, ``memory_schemas``, ``schemas`` and ``docs`` describe it; ``serve``, ``http_connection``,
``http_request``, ``connections``, ``request_threads`` and ``detached`` (a request and its answer, with a thread or
without one) run it; ``long_polls`` and ``events`` wait without a thread.
"""
