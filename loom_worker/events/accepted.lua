-- A turn is accepted: it is put on its lane, and its log begun. KEYS: those of a lane, then those of a log. ARGV: those of
-- a lane, 4 seq, 5 turn, then those of append. 1: send a wake-up, see submit.
local answer = submit(OWN, 4, 6)
append(7, 5)  -- a worker that is faster finds the log empty and opens it itself; this then changes nothing
return answer
