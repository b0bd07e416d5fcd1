ALTER TABLE usage ADD COLUMN kind VARCHAR(16) NOT NULL DEFAULT 'turn';
ALTER TABLE usage ADD COLUMN tool_calls INTEGER NOT NULL DEFAULT '0';
ALTER TABLE usage ADD COLUMN cost_nano BIGINT;
UPDATE usage SET cost_nano = CAST(ROUND(cost_usd * 1000000000) AS INTEGER);
UPDATE usage SET kind = 'summary' WHERE turn_id = '';
ALTER TABLE usage DROP COLUMN cost_usd;
CREATE INDEX usage_by_time ON usage (at_ms);
CREATE TABLE spending (
    level VARCHAR(16) NOT NULL,
    "key" VARCHAR(128) NOT NULL,
    "window" VARCHAR(16) NOT NULL,
    nano_usd BIGINT NOT NULL,
    tokens BIGINT NOT NULL,
    tool_calls BIGINT NOT NULL,
    changed_ms BIGINT NOT NULL,
    PRIMARY KEY (level, "key", "window")
);
CREATE TABLE workspaces (
    name VARCHAR(64) NOT NULL,
    rules JSON NOT NULL,
    is_disabled BOOLEAN DEFAULT '0' NOT NULL,
    created_ms BIGINT NOT NULL,
    updated_ms BIGINT NOT NULL,
    PRIMARY KEY (name)
);
