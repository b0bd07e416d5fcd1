"""What leaves L1 becomes a summary: compress.py does it step by step, write.py words one, prompt.py asks for it."""
