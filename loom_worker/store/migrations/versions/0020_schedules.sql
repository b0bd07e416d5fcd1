CREATE TABLE schedules (
  name VARCHAR(255) NOT NULL,
  plan TEXT NOT NULL,
  cursor_ms BIGINT NOT NULL,
  enabled BOOLEAN,
  last_ms BIGINT,
  last_id VARCHAR(40),
  error TEXT,
  error_ms BIGINT,
  skipped INTEGER DEFAULT '0' NOT NULL,
  missed INTEGER DEFAULT '0' NOT NULL,
  PRIMARY KEY (name)
);
