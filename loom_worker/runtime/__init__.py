"""How a process is put together: the one package that builds objects. Begin with ``build``.

``build`` the parts of a process · ``components`` what its agents share · ``agents`` an agent with its model, tools
and budgets · ``models`` models · ``embedders`` embedding models · ``tool_sets`` tools · ``prompt_context`` patterns
and skills for a question · ``workspace_rules`` what workspaces allow · ``content_versions`` the newest version of all
that · ``metrics_flusher`` stores what was counted · ``installation`` what of it cannot work · ``worker_process`` a
worker from start to stop · ``sweeping`` what the sweep, beat and the export of traces need · ``isolated`` a process for
one turn · ``flower`` Flower
"""
