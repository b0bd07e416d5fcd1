"""An HTTP API as tools, one for each operation of its OpenAPI document.

``document`` reads the file; ``schemas``, ``arguments`` and ``openapi`` make operations of it. ``request`` turns a
call's arguments into what is sent, ``client`` sends it, ``answer`` reads what comes back, ``auth`` keeps the secret out
of sight. ``backend`` puts them together.
"""
