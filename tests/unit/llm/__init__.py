"""Tests of loom_worker.llm."""
