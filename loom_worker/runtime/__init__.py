"""How a process is put together: the one package that builds objects. Begin with ``build.py``.

``build.py`` the parts of a process · ``components.py`` what its agents share · ``agents.py`` an agent with its model,
tools and budgets · ``models.py`` models · ``tool_sets.py`` tools · ``prompt_context.py`` patterns and skills for a
question · ``content_versions.py`` the newest version of all that · ``installation.py`` what of it cannot work ·
``processes.py`` worker and beat · ``isolated.py`` a process for one turn · ``flower.py`` Flower
"""
