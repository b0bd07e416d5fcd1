"""Frozen values that all rooms share: ids, json, turns, sessions, messages, chat, tools, agents, patterns, events, deliveries, pages."""
