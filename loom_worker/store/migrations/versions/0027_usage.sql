ALTER TABLE usage ADD COLUMN run_id VARCHAR(40);

ALTER TABLE usage ADD COLUMN workflow VARCHAR(64);

ALTER TABLE turns ADD COLUMN model VARCHAR(128);

ALTER TABLE turns ADD COLUMN user TEXT;

UPDATE usage SET run_id = (SELECT run_id FROM turns WHERE turns.id = usage.turn_id)
WHERE turn_id IN (SELECT id FROM turns WHERE run_id IS NOT NULL);

UPDATE usage SET workflow = (SELECT workflow FROM workflow_runs WHERE workflow_runs.id = usage.run_id)
WHERE run_id IS NOT NULL;

UPDATE turns SET user = (SELECT user FROM sessions WHERE sessions.lane = turns.lane)
WHERE lane IN (SELECT lane FROM sessions WHERE user IS NOT NULL);

UPDATE turns SET model = used.model
FROM (SELECT turn_id, model, max(n) FROM usage WHERE kind = 'turn' GROUP BY turn_id) AS used
WHERE turns.id = used.turn_id;
