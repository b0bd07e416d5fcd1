"""Workflows: their files, and what a run of one asks next.

``load`` reads a folder of files and reports agents that are missing, and ``live`` follows it; ``document`` reads one
workflow, and ``spec`` its pattern. ``members`` finds the agents that a file lists, and ``inline_agents`` reads those
that it defines. ``placeholders`` fills texts, and ``templates`` lists those of a pattern.

A run: ``decide`` says what comes next, by the pattern and the journal; pure. Patterns are written in ``steps``:
``sequences`` (pipeline, iterative, conditional, coordination, with ``stage`` for one stage that is checked) and
``fan_outs`` (fork-join, parallel, debate, swarm, with ``merge``); ``readings`` are what they read out of answers.
``plan`` makes rows of it for the store, and ``advance`` commits them and tells workers and readers.
"""
