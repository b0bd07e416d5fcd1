"""Traces.

``redact`` takes out what must not leave · ``limits`` fits a span into its size · ``batch`` the spans of one request ·
``otlp`` spans as OTLP has them, in JSON · ``otlp_protobuf`` the same in protobuf · ``collector`` one request to the
collector and what its answer means · ``export`` empties the outbox · ``flush`` says when · ``counts`` what became of
spans
"""
