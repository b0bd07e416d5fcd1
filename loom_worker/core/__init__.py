"""What every package stands on: values, errors, settings, text, YAML, child processes, the Redis client."""
