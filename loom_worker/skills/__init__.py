"""Skills in the agentskills.io format.

Reading: ``spec`` is what a SKILL.md must hold, ``folder`` reads below a folder without being led out of it, and
``index`` keeps the skills of each workspace up to date.

In a turn: ``prompt`` finds the skills that a message calls for and renders them for the model, and ``files`` is the
tool by which the model reads their files.

Installing: ``package`` takes the files out of a folder or an archive, ``storage`` changes a workspace's folder, and
``install`` puts skills there, from a URL, too, or from another workspace.
"""
