"""The layers of a request under its token budget, their compression, and recall.

``layers`` ROM, kernel, L1, L2 and their sizes · ``fit`` packs a request · ``sizes`` what L1 takes ·
``pressure`` when that is too much · ``results`` the budget of tool results · ``kernel`` facts of a session ·
``compress``, ``summarize``, ``heuristic`` compression · ``recalled``, ``recall_tools``, ``recall_facts``,
``recall_rerank`` recall · ``embed`` vectors of messages · ``semantic``, ``semantic_tool`` search by meaning, and
``fusion`` of it with the full text
"""
