"""Traces: what a turn's journal tells, as spans of OpenTelemetry, and their export.

``turn_spans`` all spans of a turn · ``call_spans`` those of models, tools and judges · ``later`` those of what follows
a turn · ``run_span`` that of a workflow's run · ``names`` how spans and their attributes are called · ``turn_traces``
for whoever asks · ``tree`` a trace as text

``export`` empties the outbox · ``pace`` how fast · ``flush`` says when · ``batch`` the spans of one request ·
``redact`` takes out what must not leave · ``limits`` fits a span into its size · ``otlp`` spans as OTLP has them, in
JSON · ``otlp_protobuf`` the same in protobuf · ``collector`` one request to the collector and what its answer means
"""
