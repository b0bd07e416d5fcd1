-- Locks, and what SQLite's triggers do. A row's trigger fires here once its whole statement is done: none may count
-- by looking at other rows of the same statement.

-- What a writer locks, held until its transaction ends; see Lock (engines/engine.py). All but WHOLE share the first
-- key, so WHOLE waits for all of them, and they for it. Each query of a function sees what was committed before it.
CREATE FUNCTION loom_lock(kind text, space text, subject text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  its_lane text;
BEGIN
  IF kind = 'whole' THEN
    PERFORM pg_advisory_xact_lock(hashtextextended('loom', 0));
    RETURN;
  END IF;
  PERFORM pg_advisory_xact_lock_shared(hashtextextended('loom', 0));
  IF kind = 'lane' THEN
    its_lane := subject;
  ELSIF kind = 'turn' THEN
    SELECT lane INTO its_lane FROM turns WHERE id = subject;
  ELSE
    PERFORM pg_advisory_xact_lock(hashtextextended(kind || E'\x1f' || space || E'\x1f' || subject, 0));
    IF kind = 'session' THEN
      SELECT lane INTO its_lane FROM sessions WHERE workspace = space AND id = subject;
    END IF;
  END IF;
  IF its_lane IS NOT NULL THEN
    PERFORM pg_advisory_xact_lock(hashtextextended('lane' || E'\x1f' || its_lane, 0));
  END IF;
END $$;

CREATE FUNCTION loom_begin(kind text, space text, subject text, is_durable boolean, wait_ms integer)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('lock_timeout', wait_ms::text, true);
  IF NOT is_durable THEN
    PERFORM set_config('synchronous_commit', 'off', true);
  END IF;
  PERFORM loom_lock(kind, space, subject);
END $$;

-- A session that is deleted is in another workspace by then, so the turn says in which it counted.
CREATE FUNCTION loom_count_turns(of_lane text, of_workspace text, more integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  depth integer;
BEGIN
  UPDATE sessions SET queue_depth = queue_depth + more WHERE lane = of_lane RETURNING queue_depth INTO depth;
  INSERT INTO depth_deltas (workspace, turns, lanes)
  VALUES (of_workspace, more, CASE WHEN more > 0 AND depth = 1 THEN 1 WHEN more < 0 AND depth = 0 THEN -1 ELSE 0 END);
END $$;

CREATE FUNCTION loom_turn_is_new() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM loom_count_turns(NEW.lane, NEW.workspace, 1);
  RETURN NULL;
END $$;

CREATE FUNCTION loom_turn_has_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM loom_count_turns(NEW.lane, NEW.workspace, CASE WHEN NEW.completed_ms IS NULL THEN 1 ELSE -1 END);
  IF NEW.run_id IS NOT NULL AND NEW.completed_ms IS NOT NULL THEN
    UPDATE workflow_runs SET due_ms = least(coalesce(due_ms, NEW.completed_ms), NEW.completed_ms)
    WHERE id = NEW.run_id AND completed_ms IS NULL;
  END IF;
  RETURN NULL;
END $$;

CREATE FUNCTION loom_turn_is_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM loom_count_turns(OLD.lane, OLD.workspace, -1);
  UPDATE workflow_runs SET due_ms = OLD.created_ms WHERE id = OLD.run_id AND completed_ms IS NULL;
  RETURN NULL;
END $$;

CREATE TRIGGER depths_count_new_turns AFTER INSERT ON turns
FOR EACH ROW WHEN (NEW.completed_ms IS NULL) EXECUTE FUNCTION loom_turn_is_new();

CREATE TRIGGER depths_count_ended_turns AFTER UPDATE OF completed_ms ON turns
FOR EACH ROW WHEN ((OLD.completed_ms IS NULL) <> (NEW.completed_ms IS NULL)) EXECUTE FUNCTION loom_turn_has_ended();

CREATE TRIGGER depths_count_deleted_turns AFTER DELETE ON turns
FOR EACH ROW WHEN (OLD.completed_ms IS NULL) EXECUTE FUNCTION loom_turn_is_deleted();

CREATE FUNCTION loom_lane_is_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO depth_deltas (workspace, turns, lanes) VALUES (OLD.workspace, 0, -1);
  RETURN NULL;
END $$;

CREATE TRIGGER depths_count_deleted_lanes AFTER DELETE ON sessions
FOR EACH ROW WHEN (OLD.queue_depth > 0) EXECUTE FUNCTION loom_lane_is_deleted();

CREATE FUNCTION loom_run_is_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM shared_memory
  WHERE workspace = OLD.workspace AND namespace = 'RUN' AND owner >= OLD.id AND owner < OLD.id || '0';
  RETURN NULL;
END $$;

CREATE TRIGGER run_memory_goes_with_its_run AFTER DELETE ON workflow_runs
FOR EACH ROW EXECUTE FUNCTION loom_run_is_deleted();

-- A retry goes on with a copy; the 0 comes next after the slash that parts a run from a swarm in it.
CREATE FUNCTION loom_run_is_retried() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO shared_memory
    (workspace, namespace, owner, key, value, is_deleted, version, revision, updated_by, updated_ms)
  SELECT workspace, namespace, NEW.id || substr(owner, length(NEW.retry_of) + 1),
    key, value, is_deleted, version, revision, updated_by, updated_ms
  FROM shared_memory WHERE workspace = NEW.workspace AND namespace = 'RUN'
    AND owner >= NEW.retry_of AND owner < NEW.retry_of || '0';
  RETURN NULL;
END $$;

CREATE TRIGGER run_memory_goes_on_in_a_retry AFTER INSERT ON workflow_runs
FOR EACH ROW WHEN (NEW.retry_of IS NOT NULL) EXECUTE FUNCTION loom_run_is_retried();

CREATE FUNCTION loom_audit_is_kept() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  chain audit_chains;
BEGIN
  IF TG_OP = 'UPDATE' THEN
    RAISE EXCEPTION 'rows of the audit are never changed' USING ERRCODE = 'integrity_constraint_violation';
  ELSIF TG_OP = 'INSERT' THEN
    SELECT * INTO chain FROM audit_chains WHERE workspace = NEW.workspace;
    IF NEW.seq <> 1 + coalesce(chain.last_seq, 0) THEN
      RAISE EXCEPTION 'rows of the audit are only appended' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    INSERT INTO audit_chains (workspace, last_seq, last_hash) VALUES (NEW.workspace, NEW.seq, NEW.hash)
    ON CONFLICT (workspace) DO UPDATE SET last_seq = EXCLUDED.last_seq, last_hash = EXCLUDED.last_hash;
    RETURN NEW;
  END IF;
  SELECT * INTO chain FROM audit_chains WHERE workspace = OLD.workspace;
  IF OLD.seq > coalesce(chain.pruned_seq, 0) THEN
    RAISE EXCEPTION 'rows of the audit are removed with age alone' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN OLD;
END $$;

CREATE TRIGGER audit_is_kept BEFORE INSERT OR UPDATE OR DELETE ON audit
FOR EACH ROW EXECUTE FUNCTION loom_audit_is_kept();

CREATE FUNCTION loom_inbox_is_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'UPDATE' THEN
    RAISE EXCEPTION 'rows of the audit are never changed' USING ERRCODE = 'integrity_constraint_violation';
  ELSIF OLD.n > coalesce((SELECT taken_n FROM audit_chains WHERE workspace = OLD.workspace), 0) THEN
    RAISE EXCEPTION 'rows of the audit leave the inbox for their chain alone'
      USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN OLD;
END $$;

CREATE TRIGGER audit_inbox_is_kept BEFORE UPDATE OR DELETE ON audit_inbox
FOR EACH ROW EXECUTE FUNCTION loom_inbox_is_kept();
