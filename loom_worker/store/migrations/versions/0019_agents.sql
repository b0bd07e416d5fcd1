ALTER TABLE turns ADD COLUMN parent_turn_id VARCHAR(40);

ALTER TABLE turns ADD COLUMN ancestors JSON;

ALTER TABLE turns ADD COLUMN output_ref JSON;

ALTER TABLE run_stages ADD COLUMN output_ref JSON;

CREATE INDEX turns_by_parent ON turns (parent_turn_id) WHERE parent_turn_id IS NOT NULL;

ALTER TABLE calls ADD COLUMN awaits VARCHAR(16);

ALTER TABLE calls ADD COLUMN child_turn_id VARCHAR(40);

ALTER TABLE calls ADD COLUMN wait_until_ms BIGINT;

CREATE INDEX calls_awaiting ON calls (turn_id) WHERE awaits IS NOT NULL AND status = 'running';

CREATE TABLE agent_messages (
  n INTEGER NOT NULL,
  id VARCHAR(40) NOT NULL,
  workspace VARCHAR(64) NOT NULL,
  scope TEXT NOT NULL,
  user TEXT,
  to_agent VARCHAR(193) NOT NULL,
  from_agent VARCHAR(193) NOT NULL,
  from_session VARCHAR(128) NOT NULL,
  from_turn_id VARCHAR(40) NOT NULL,
  kind VARCHAR(24) NOT NULL,
  body TEXT NOT NULL,
  ref VARCHAR(40),
  in_reply_to VARCHAR(40),
  status VARCHAR(16) NOT NULL,
  attempts INTEGER NOT NULL,
  turn_id VARCHAR(40),
  call_id VARCHAR(128),
  reason VARCHAR(32),
  created_ms BIGINT NOT NULL,
  expires_ms BIGINT NOT NULL,
  ended_ms BIGINT,
  PRIMARY KEY (n),
  UNIQUE (id)
);

CREATE INDEX agent_messages_queued ON agent_messages (workspace, to_agent, scope, n) WHERE ended_ms IS NULL;

CREATE INDEX agent_messages_taken ON agent_messages (turn_id) WHERE ended_ms IS NULL;

CREATE INDEX agent_messages_by_agent ON agent_messages (workspace, to_agent, n);

CREATE INDEX agent_messages_by_workspace ON agent_messages (workspace, n);

CREATE INDEX agent_messages_by_status ON agent_messages (status, workspace, n);

CREATE INDEX agent_messages_by_session ON agent_messages (workspace, from_session);

CREATE INDEX agent_messages_by_end ON agent_messages (ended_ms);

CREATE TABLE agent_message_refs (
  message_id VARCHAR(40) NOT NULL,
  ref VARCHAR(40) NOT NULL,
  PRIMARY KEY (message_id, ref),
  FOREIGN KEY(message_id) REFERENCES agent_messages (id) ON DELETE CASCADE
);

CREATE INDEX agent_message_refs_by_ref ON agent_message_refs (ref);
