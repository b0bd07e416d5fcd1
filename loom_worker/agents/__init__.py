"""Agents as YAML files.

``load`` reads a folder of them, with ``work`` for their data and tools and ``memory`` for their rules of memory;
``check`` reports what cannot work with the tools and models at hand; ``live`` follows the files. The packaged agent is
``default.yaml``.
"""
