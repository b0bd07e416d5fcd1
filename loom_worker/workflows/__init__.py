"""Workflows: their files, and what a run of one asks next.

``load`` reads a folder of files, each workflow with the agents that it defines, reports agents that are missing, and
follows it; ``spec`` reads a workflow's pattern. ``members`` finds the agents that a file lists.
``placeholders`` fills texts, and lists those of a pattern.

A run: ``decide`` says what comes next, by the pattern and the journal; pure. Patterns are written in ``steps``:
``sequences`` (pipeline, iterative, conditional, coordination, stages that are checked) and
``fan_outs`` (fork-join, parallel, debate, swarm); ``readings`` are what they read out of answers. ``plan`` makes rows
of it for the store, and ``advance`` commits them and tells workers and readers.
"""
