ALTER TABLE api_keys ADD COLUMN requests_per_minute INTEGER;
ALTER TABLE api_keys ADD COLUMN tokens_per_minute INTEGER;
ALTER TABLE turns ADD COLUMN key_id VARCHAR(40);
ALTER TABLE usage ADD COLUMN key_id VARCHAR(40);
CREATE INDEX usage_by_key ON usage (key_id, at_ms) WHERE key_id IS NOT NULL;
CREATE INDEX turns_open_by_key ON turns (key_id)
  WHERE key_id IS NOT NULL AND status IN ('queued', 'in_progress', 'requires_action');
