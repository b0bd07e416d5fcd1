"""The layers of a request under its token budget, their compression, and recall.

``layers`` ROM, kernel, L1, L2 and their sizes · ``fit`` packs a request · ``pressure`` when that is too much ·
``results`` the budget of tool results, and what L1 takes · ``kernel`` facts of a session · ``compress``, ``summarize``,
``heuristic`` compression · ``recalled``, ``recall_tools``, ``recall_facts``, ``recall_rerank`` recall

Beyond the session: ``search_tool`` searches all sessions of a scope by words and by meaning, ``dated`` makes summaries
by date and facts of what has left the window, ``extract`` asks for both and reads dates, ``answers`` reads what comes,
``tier_tools`` lets agents look them up; ``embed`` gives messages their vectors, and ``semantic`` searches by meaning
and joins that with the full text.
"""
