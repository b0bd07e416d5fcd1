ALTER TABLE turns ADD COLUMN judge JSON;
CREATE TABLE verdicts (
  turn_id VARCHAR(40) NOT NULL,
  reply_n INTEGER NOT NULL,
  position INTEGER NOT NULL,
  name VARCHAR(64) NOT NULL,
  type VARCHAR(16) NOT NULL,
  weight FLOAT NOT NULL,
  criticality VARCHAR(16) NOT NULL,
  status VARCHAR(16) NOT NULL,
  sends INTEGER NOT NULL,
  deaths INTEGER NOT NULL,
  sent_ms BIGINT NOT NULL,
  worker VARCHAR(64),
  started_ms BIGINT,
  finished_ms BIGINT,
  score FLOAT,
  critique TEXT,
  error TEXT,
  model VARCHAR(128),
  usage JSON NOT NULL,
  PRIMARY KEY (turn_id, reply_n, position),
  FOREIGN KEY(turn_id) REFERENCES turns (id) ON DELETE CASCADE
)
