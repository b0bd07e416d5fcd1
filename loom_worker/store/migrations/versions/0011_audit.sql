CREATE TABLE audit (
  workspace VARCHAR(64) NOT NULL,
  seq INTEGER NOT NULL,
  at_ms BIGINT NOT NULL,
  action VARCHAR(32) NOT NULL,
  key_id VARCHAR(40),
  user TEXT,
  channel TEXT,
  agent TEXT,
  model TEXT,
  session_id TEXT,
  turn_id VARCHAR(40),
  subject TEXT,
  status TEXT,
  reason TEXT,
  tools TEXT,
  decisions TEXT,
  tokens BIGINT,
  cost_nano BIGINT,
  duration_ms BIGINT,
  previous_hash VARCHAR(64) NOT NULL,
  hash VARCHAR(64) NOT NULL,
  PRIMARY KEY (workspace, seq)
);

CREATE INDEX audit_by_session ON audit (workspace, session_id, seq);

CREATE INDEX audit_by_turn ON audit (workspace, turn_id, seq);

CREATE INDEX audit_by_user ON audit (workspace, user, seq);

CREATE TABLE audit_chains (
  workspace VARCHAR(64) NOT NULL,
  last_seq INTEGER NOT NULL,
  last_hash VARCHAR(64) NOT NULL,
  pruned_seq INTEGER DEFAULT '0' NOT NULL,
  pruned_hash VARCHAR(64),
  PRIMARY KEY (workspace)
);

CREATE TRIGGER audit_is_appended BEFORE INSERT ON audit
WHEN NEW.seq <> 1 + coalesce((SELECT last_seq FROM audit_chains WHERE workspace = NEW.workspace), 0)
BEGIN SELECT RAISE(ABORT, 'rows of the audit are only appended'); END;

CREATE TRIGGER audit_has_a_head AFTER INSERT ON audit
BEGIN
  INSERT INTO audit_chains (workspace, last_seq, last_hash) VALUES (NEW.workspace, NEW.seq, NEW.hash)
  ON CONFLICT (workspace) DO UPDATE SET last_seq = excluded.last_seq, last_hash = excluded.last_hash;
END;

CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit
BEGIN SELECT RAISE(ABORT, 'rows of the audit are never changed'); END;

CREATE TRIGGER audit_is_kept BEFORE DELETE ON audit
WHEN OLD.seq > coalesce((SELECT pruned_seq FROM audit_chains WHERE workspace = OLD.workspace), 0)
BEGIN SELECT RAISE(ABORT, 'rows of the audit are removed with age alone'); END;

CREATE TABLE user_deletions (
  workspace VARCHAR(64) NOT NULL,
  user TEXT NOT NULL,
  key_id VARCHAR(40) NOT NULL,
  sessions INTEGER DEFAULT '0' NOT NULL,
  turns INTEGER DEFAULT '0' NOT NULL,
  keys INTEGER NOT NULL,
  asked_ms BIGINT NOT NULL,
  PRIMARY KEY (workspace, user)
);
