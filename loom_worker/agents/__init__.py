"""Agents as YAML files.

``load`` reads a folder of them and follows it, with ``folder`` (which reads workflows' files, too), ``work`` for their
data, tools and agents elsewhere that answer instead of a model, ``memory`` for their rules of memory, ``tiers`` for
what they remember beyond it, ``judges`` for who looks at their answers, ``models`` for the models that they name, and
``schedules`` for when they are asked without a client; ``check`` reports what cannot work with the tools and models at
hand; ``versions`` stores what they were; ``known`` adds the agents that workflows define; ``learned/`` reads what
optimizers of prompts have found for them. The packaged agent is ``default.yaml``.
"""
