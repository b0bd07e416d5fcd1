-- One circuit breaker: a process' own, and the one of all processes, which two processes open that see failures alone.
-- Times come from Redis alone. A missing hash is a closed breaker: lost memory means closed.
-- KEYS: 1 the process' own hash, 2 the hash of all, 3 who opened theirs since anyone succeeded (by when that ends),
-- 4 the names of all. ARGV: 1 look, failed, succeeded or let_go; 2 the name; 3 a token or ''; then
-- 4 failures, 5 window_ms, 6 open_ms, 7 max_open_ms, 8 successes, 9 busy_ms, 10 probe_ms, 11 the process, 12 the source
-- of a failure ('': one of its own). Fields: while closed one for each source that failed, with its process; else
-- `until_ms`, `span_ms`, `wins`, and of the probe under way `token`, `token_ms` (its end), `probe_ms`; `failed_by`:
-- source and process of the probe that failed last.
local OWN, ALL, OPENED, NAMES = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local VERB, NAME, TOKEN, PROCESS, SOURCE = ARGV[1], ARGV[2], ARGV[3], ARGV[11], ARGV[12]
local FAILURES, OPEN_MS, MAX_OPEN_MS = tonumber(ARGV[4]), tonumber(ARGV[6]), tonumber(ARGV[7])
local KEEP_MS = 600000  -- an open breaker that nobody asks for is forgotten after this

local time = redis.call('TIME')
local NOW = time[1] * 1000 + math.floor(time[2] / 1000)

local function number(hash, field)
  return tonumber(redis.call('HGET', hash, field) or '0')
end

local function name_of(hash)
  return hash == ALL and NAME or NAME .. '|' .. PROCESS
end

local function is_closed(hash)
  return number(hash, 'span_ms') == 0
end

local function keep(hash, ms)
  redis.call('PEXPIRE', hash, ms)
  redis.call('ZREMRANGEBYSCORE', NAMES, '-inf', NOW)
  if hash == OWN or not is_closed(ALL) then
    redis.call('ZADD', NAMES, string.format('%.0f', NOW + ms), name_of(hash))
  end
  redis.call('PEXPIRE', NAMES, 86400000)
end

local function close(hash)
  redis.call('DEL', hash)
  redis.call('ZREM', NAMES, name_of(hash))
end

local function open(hash, span_ms)
  redis.call('DEL', hash)
  redis.call('HSET', hash, 'until_ms', string.format('%.0f', NOW + span_ms), 'span_ms', span_ms)
  keep(hash, span_ms + KEEP_MS)
end

local function end_probe(hash)
  redis.call('HDEL', hash, 'token', 'token_ms', 'probe_ms')
end

local function is_probe(hash)
  return TOKEN ~= '' and redis.call('HGET', hash, 'token') == TOKEN
end

-- More than the whole span left means that the clock was set back: that time is over.
local function left(until_ms, span_ms)
  local ms = until_ms - NOW
  return ms <= span_ms and math.max(ms, 0) or 0
end

-- Milliseconds after which to ask again, 0: call.
local function wait_ms(hash)
  local open_ms = left(number(hash, 'until_ms'), number(hash, 'span_ms'))
  if open_ms > 0 then
    return open_ms
  end
  local busy_ms = left(number(hash, 'token_ms'), number(hash, 'probe_ms'))
  return math.min(busy_ms, tonumber(ARGV[9]))
end

local function begin_probe(hash)
  local probe_ms = tonumber(ARGV[10])
  redis.call('HSET', hash, 'token', TOKEN, 'probe_ms', probe_ms, 'token_ms', string.format('%.0f', NOW + probe_ms))
  keep(hash, probe_ms + KEEP_MS)
end

-- What one process sees may be its own fault; all processes leave it alone once another one saw the same.
local has_opened = false
local function open_own(span_ms)
  has_opened = true
  open(OWN, span_ms)
  redis.call('ZREMRANGEBYSCORE', OPENED, '-inf', NOW - tonumber(ARGV[5]))
  redis.call('ZADD', OPENED, string.format('%.0f', NOW + span_ms), PROCESS)
  redis.call('PEXPIRE', OPENED, span_ms + KEEP_MS)
  if is_closed(ALL) and redis.call('ZCARD', OPENED) > 1 then
    open(ALL, span_ms)
  end
end

-- Into a closed one, which a source that failed before keeps no longer. True: enough have failed, if no process counts
-- for more than half of them, for it may be its own fault.
local function add_source(hash)
  local source = SOURCE ~= '' and SOURCE or '#' .. redis.call('HLEN', hash)
  if redis.call('HSET', hash, source, PROCESS) == 1 then
    keep(hash, tonumber(ARGV[5]))
  end
  local seen, count = {}, 0
  for _, process in ipairs(redis.call('HVALS', hash)) do
    seen[process] = (seen[process] or 0) + 1
    count = count + ((hash == OWN or seen[process] <= math.ceil(FAILURES / 2)) and 1 or 0)
  end
  return count >= FAILURES and (hash == OWN or count > 1)
end

-- It opens again once another source's probe fails, too, and the breaker of all once another process' does.
local function fail_probe(hash, reopen)
  local source, process = string.match(redis.call('HGET', hash, 'failed_by') or '', '^(%S*) (.*)$')
  local is_second = SOURCE == '' or (source and source ~= SOURCE)
  if is_second and (hash == OWN or (process and process ~= PROCESS)) then
    reopen(math.min(number(hash, 'span_ms') * 2, MAX_OPEN_MS))
  else
    redis.call('HDEL', hash, 'wins')
    redis.call('HSET', hash, 'failed_by', SOURCE .. ' ' .. PROCESS)
    end_probe(hash)
  end
end

local function win_probe(hash)
  if redis.call('HINCRBY', hash, 'wins', 1) >= tonumber(ARGV[8]) then
    close(hash)
  else
    redis.call('HDEL', hash, 'failed_by')
    end_probe(hash)
  end
end

-- A look returns {0, 0}: closed; {1, 0}: probe, with the token that was offered; {2, ms}: open for so long. Any other
-- verb returns {2, 0} if it has opened the process' own breaker, else {0, 0}.
if VERB == 'look' then
  local state = 0
  for _, hash in ipairs({OWN, ALL}) do
    if not is_closed(hash) then
      local ms = wait_ms(hash)
      if ms > 0 then
        return {2, ms}
      end
      state = 1
    end
  end
  for _, hash in ipairs({OWN, ALL}) do
    if not is_closed(hash) then
      begin_probe(hash)
    end
  end
  return {state, 0}
end

local is_own_closed = is_closed(OWN)
if VERB == 'failed' then
  if is_probe(ALL) then
    fail_probe(ALL, function(span_ms) open(ALL, span_ms) end)
  end
  if is_own_closed then
    if is_closed(ALL) and add_source(ALL) then
      open(ALL, OPEN_MS)
    end
    if add_source(OWN) then
      open_own(OPEN_MS)
    end
  elseif is_probe(OWN) then
    fail_probe(OWN, open_own)
  end
elseif VERB == 'succeeded' then
  if is_own_closed or is_probe(OWN) then
    redis.call('DEL', OPENED)
    if is_closed(ALL) then
      close(ALL)
    end
  end
  if is_probe(ALL) then
    win_probe(ALL)
  end
  if is_own_closed then
    close(OWN)
  elseif is_probe(OWN) then
    win_probe(OWN)
  end
elseif VERB == 'let_go' then
  for _, hash in ipairs({OWN, ALL}) do
    if is_probe(hash) then
      end_probe(hash)
    end
  end
end
return {has_opened and 2 or 0, 0}
