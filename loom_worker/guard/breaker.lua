-- One circuit breaker. Times come from Redis alone. A missing hash is a closed breaker: lost memory means closed.
-- KEYS: 1 its hash, 2 the names of all. ARGV: 1 look, failed, succeeded or let_go; 2 its name; 3 a token or ''; then
-- 4 failures, 5 window_ms, 6 open_ms, 7 max_open_ms, 8 successes, 9 busy_ms, 10 probe_ms.
-- Fields: while closed `fails`; else `until_ms`, `span_ms`, `wins`, and of the probe under way `token`,
-- `token_ms` (its end), `probe_ms`.
local HASH, NAMES, VERB, NAME, TOKEN = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
local KEEP_MS = 600000  -- an open breaker that nobody asks for is forgotten after this

local time = redis.call('TIME')
local NOW = time[1] * 1000 + math.floor(time[2] / 1000)

local function number(field)
  return tonumber(redis.call('HGET', HASH, field) or '0')
end

local function keep(ms)
  redis.call('PEXPIRE', HASH, ms)
  redis.call('ZADD', NAMES, string.format('%.0f', NOW + ms), NAME)
  redis.call('PEXPIRE', NAMES, 86400000)
end

local function close()
  redis.call('DEL', HASH)
  redis.call('ZREM', NAMES, NAME)
end

local function open(span_ms)
  redis.call('DEL', HASH)
  redis.call('HSET', HASH, 'until_ms', string.format('%.0f', NOW + span_ms), 'span_ms', span_ms)
  keep(span_ms + KEEP_MS)
end

local function end_probe()
  redis.call('HDEL', HASH, 'token', 'token_ms', 'probe_ms')
end

-- More than the whole span left means that the clock was set back: that time is over.
local function left(until_ms, span_ms)
  local ms = until_ms - NOW
  return ms <= span_ms and math.max(ms, 0) or 0
end

local span_ms = number('span_ms')
local is_closed = span_ms == 0
local is_probe = TOKEN ~= '' and redis.call('HGET', HASH, 'token') == TOKEN

-- {0, 0}: closed. {1, 0}: probe, with the token that was offered. {2, ms}: open for so long.
if VERB == 'look' then
  if is_closed then
    return {0, 0}
  end
  local open_ms = left(number('until_ms'), span_ms)
  if open_ms > 0 then
    return {2, open_ms}
  end
  local busy_ms = left(number('token_ms'), number('probe_ms'))
  if busy_ms > 0 then
    return {2, math.min(busy_ms, tonumber(ARGV[9]))}
  end
  local probe_ms = tonumber(ARGV[10])
  redis.call('HSET', HASH, 'token', TOKEN, 'probe_ms', probe_ms, 'token_ms', string.format('%.0f', NOW + probe_ms))
  keep(probe_ms + KEEP_MS)
  return {1, 0}
elseif VERB == 'failed' and is_closed then
  if redis.call('HINCRBY', HASH, 'fails', 1) >= tonumber(ARGV[4]) then
    open(tonumber(ARGV[6]))
  else
    keep(tonumber(ARGV[5]))
  end
elseif VERB == 'failed' and is_probe then
  open(math.min(span_ms * 2, tonumber(ARGV[7])))
elseif VERB == 'succeeded' and is_closed then
  close()
elseif VERB == 'succeeded' and is_probe then
  if redis.call('HINCRBY', HASH, 'wins', 1) >= tonumber(ARGV[8]) then
    close()
  else
    end_probe()
  end
elseif VERB == 'let_go' and is_probe then
  end_probe()
end
return {0, 0}
