"""The layers of a request under its token budget, their compression, and recall.

``layers.py`` ROM, kernel, L1, L2 and their sizes · ``fit.py`` packs a request · ``pressure.py`` when L1 is too full ·
``results.py`` the budget of tool results · ``kernel.py`` facts of a session · ``compress.py``, ``summarize.py``,
``heuristic.py`` compression · ``recalled.py``, ``recall_tools.py``, ``recall_facts.py``, ``recall_rerank.py`` recall
"""
