"""How a process is put together: the one package that builds objects. ``build.py`` is where to begin."""
