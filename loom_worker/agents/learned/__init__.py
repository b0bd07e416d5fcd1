"""The learned layer of agents: what optimizers of prompts have found, imported as data.

``reading`` reads a file and checks its bounds, ``dspy`` knows what programs of DSPy look like, ``prompt`` makes the
part of the system text that agents are sent.
"""
