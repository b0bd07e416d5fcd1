-- A turn has ended: its last events are written, and its slot goes on. KEYS: those of a lane, then those of a log. ARGV:
-- those of a lane and of advance, then those of append. What append answers, then what advance does.
local last = append(7, 7)
return {last, advance(OWN, ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7]))}
