"""Traces: what a turn's journal tells, as spans, and their export to a collector.

``turn_spans`` all spans of a turn, for whoever asks · ``call_spans`` those of models, tools and judges · ``later``
those of what follows a turn, and that of a workflow's run · ``names`` how spans and their attributes are called

``export`` empties the outbox · ``flush`` says when · ``encode`` spans as they leave: OpenTelemetry's own, in OTLP,
within their limits · ``redact`` takes out what must not leave · ``collector`` one request to the collector and what its
answer means
"""
