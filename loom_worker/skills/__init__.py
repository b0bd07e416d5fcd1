"""Skills in the agentskills.io format.

spec.py: what a SKILL.md must hold; folder.py: reading below a folder without being led out of it; shelf.py: the skills
of each workspace, always up to date; choose.py: which of them a message calls for; tell.py: what the model reads of
them; files.py: the tool by which it reads their files; bundle.py, gather.py, archive.py, fetch.py: what is
to be installed, from wherever; place.py, install.py, manage.py: how it gets to its place, and goes.
"""
