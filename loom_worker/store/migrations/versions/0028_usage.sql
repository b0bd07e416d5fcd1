ALTER TABLE usage ADD COLUMN run_id VARCHAR(40);

ALTER TABLE usage ADD COLUMN workflow VARCHAR(64);

ALTER TABLE turns ADD COLUMN model VARCHAR(128);

ALTER TABLE turns ADD COLUMN user TEXT;

UPDATE usage SET run_id = (SELECT run_id FROM turns WHERE turns.id = usage.turn_id)
WHERE turn_id IN (SELECT id FROM turns WHERE run_id IS NOT NULL);

UPDATE usage SET workflow = (SELECT workflow FROM workflow_runs WHERE id = usage.run_id) WHERE run_id IS NOT NULL;

UPDATE turns SET user = (SELECT user FROM sessions WHERE sessions.lane = turns.lane)
WHERE lane IN (SELECT lane FROM sessions WHERE user IS NOT NULL);

CREATE TRIGGER run_memory_goes_with_its_run AFTER DELETE ON workflow_runs BEGIN
  DELETE FROM shared_memory
  WHERE workspace = OLD.workspace AND namespace = 'RUN' AND owner >= OLD.id AND owner < OLD.id || '0';
END;

-- A retry goes on with a copy; the 0 comes next after the slash that parts a run from a swarm in it.
CREATE TRIGGER run_memory_goes_on_in_a_retry AFTER INSERT ON workflow_runs WHEN NEW.retry_of IS NOT NULL BEGIN
  INSERT INTO shared_memory
    (workspace, namespace, owner, key, value, is_deleted, version, revision, updated_by, updated_ms)
  SELECT workspace, namespace, NEW.id || substr(owner, length(NEW.retry_of) + 1),
    key, value, is_deleted, version, revision, updated_by, updated_ms
  FROM shared_memory WHERE workspace = NEW.workspace AND namespace = 'RUN'
    AND owner >= NEW.retry_of AND owner < NEW.retry_of || '0';
END
