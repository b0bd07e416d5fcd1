"""An HTTP API as tools, one for each operation of its OpenAPI document.

``document`` reads the file and writes out its schemas; ``openapi`` makes operations of it. ``request`` turns a call's
arguments into what is sent; ``client`` sends it, reads the answer and hides the secret. ``backend`` is the whole.
"""
