"""A turn's event log.

``log`` keeps it in Redis (with ``*.lua``), ``news`` hears that it has changed, ``writer`` writes it while the turn
runs, ``rebuild`` rebuilds it from the journal. ``turn_signals`` tells Redis of a turn that is accepted or has ended:
its log and its lane in one step. It also tells readers that a workflow's run has gone on.
"""
