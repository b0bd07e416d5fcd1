ALTER TABLE turns ADD COLUMN claimed_us BIGINT;
ALTER TABLE turns ADD COLUMN trace JSON;
ALTER TABLE calls ADD COLUMN trace JSON;
ALTER TABLE outbox ADD COLUMN trace_id VARCHAR(32);
CREATE TABLE spans (
  n INTEGER NOT NULL PRIMARY KEY,
  turn_id VARCHAR(40) NOT NULL,
  added_ms BIGINT NOT NULL,
  body JSON NOT NULL,
  FOREIGN KEY(turn_id) REFERENCES turns (id) ON DELETE CASCADE
);
CREATE INDEX spans_by_turn ON spans (turn_id);
CREATE TABLE trace_outbox (
  n INTEGER NOT NULL PRIMARY KEY,
  turn_id VARCHAR(40) NOT NULL,
  span_n INTEGER,
  added_ms BIGINT NOT NULL,
  held_until_ms BIGINT DEFAULT 0 NOT NULL,
  FOREIGN KEY(turn_id) REFERENCES turns (id) ON DELETE CASCADE,
  FOREIGN KEY(span_n) REFERENCES spans (n) ON DELETE CASCADE
);
CREATE INDEX trace_outbox_by_turn ON trace_outbox (turn_id);
CREATE INDEX trace_outbox_by_span ON trace_outbox (span_n) WHERE span_n IS NOT NULL;
CREATE TABLE metric_values (
  series TEXT NOT NULL PRIMARY KEY,
  value FLOAT NOT NULL
);
