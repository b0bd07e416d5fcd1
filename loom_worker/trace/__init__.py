"""Traces: what a turn's journal tells, as spans of OpenTelemetry.

``turn_spans`` all spans of a turn · ``call_spans`` those of models, tools and judges · ``later`` those of what follows
a turn · ``names`` how spans and their attributes are called · ``turn_traces`` for whoever asks · ``tree`` a trace as
text
"""
