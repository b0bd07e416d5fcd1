"""The layers of a request under its token budget, their compression, and recall.

``layers`` ROM, kernel, L1, L2 and their sizes · ``fit`` packs a request · ``sizes`` what L1 takes · ``pressure`` when
that is too much · ``results`` the budget of tool results · ``kernel`` facts of a session · ``compress``, ``summarize``,
``heuristic`` compression · ``recalled``, ``recall_tools``, ``recall_facts``, ``recall_rerank`` recall

Beyond the session: ``search_tool`` searches all sessions of a scope by words and by meaning, ``dated`` makes summaries
by date and facts of what has left the window, ``extract`` asks for both, ``answers`` reads what comes, ``tier_tools``
lets agents look them up, ``iso_dates`` reads the dates that models write; ``embed`` gives messages their vectors, and
``semantic`` searches by meaning and joins that with the full text.
"""
