"""What Redis does in one atomic step, as Lua. Some keys are made up in the scripts: no Redis Cluster."""

from __future__ import annotations

from hashlib import sha1
from typing import NamedTuple


class Script(NamedTuple):
    """A script and the digest that Redis keeps it under."""

    text: str
    digest: str


def _script(text: str) -> Script:
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


def _sending(text: str) -> Script:
    """A script with a function that sends a message to a run, which it has found in the store."""
    return _script(_SEND + text)


_SEND = """
local function send(run, ...)
  local inbox = 'hatchway:inbox:' .. run
  redis.call('XADD', inbox, 'MAXLEN', '~', '10000', '*', ...)
  if redis.call('PTTL', inbox) < 0 then redis.call('PEXPIRE', inbox, 60000) end
end
"""


COMMIT = _script("""
-- KEYS: actors, changes, counter, tombstone, used, identity.
-- ARGV: actor, chart, expected version, new version or 0, value or '', tag, milliseconds of the once or '', '1' where
-- they are a moment of this server's clock, at which it is too old, the fleet's identity or ''.
-- A repeat of a commit whose answer was lost is known by its tag, and is no second one. Whatever the clock of a server
-- that a failover leads to: what was used is forgotten when that very clock makes it too old.
if ARGV[9] ~= '' and redis.call('GET', KEYS[6]) ~= ARGV[9] then return 'EMPTIED' end
local held, version = redis.call('HGET', KEYS[1], ARGV[1]), 0
if held then
  local v, tag = string.match(held, '^(%d+):(%w+):')
  if tag == ARGV[6] then return 'OK' end
  version = tonumber(v)
elseif redis.call('EXISTS', KEYS[4]) == 1 then
  return 'OK'
end
if version ~= tonumber(ARGV[3]) then return 'MOVED' end
if ARGV[7] ~= '' then
  local ms = tonumber(ARGV[7])
  if redis.call('EXISTS', KEYS[5]) == 1 then return 'USED' end
  if ARGV[8] == '1' then
    local t = redis.call('TIME')
    if tonumber(t[1]) * 1000 + tonumber(t[2]) / 1000 >= ms then return 'USED' end
    redis.call('SET', KEYS[5], '1', 'PXAT', ARGV[7])
  elseif ms > 0 then
    redis.call('SET', KEYS[5], '1', 'PX', ms)
  end
end
if ARGV[5] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('SET', KEYS[4], '1', 'PX', 30000)
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[5])
end
local n, since = redis.call('INCR', KEYS[3]), redis.call('TIME')[1] - 600
redis.call('XADD', KEYS[2], 'MINID', '~', since .. '000', '*', 'n', n, 'c', ARGV[2], 'a', ARGV[1], 'v', ARGV[4])
return 'OK'
""")

LEASE = _script("""
-- KEYS: lease, inbox, engines, home. ARGV: run, name, lease ms, epoch seconds, two fresh MAC keys, ms that a home is
-- remembered, then runs to look after.
-- The answer: time in microseconds, MAC keys of the epochs before, now and next, then 1 or 0 for each run.
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.call('HSET', KEYS[3], ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], 60000)
redis.call('SET', KEYS[4], ARGV[1] .. '|' .. ARGV[2], 'PX', ARGV[7])
local t = redis.call('TIME')
local epoch = math.floor(tonumber(t[1]) / tonumber(ARGV[4]))
local answer = {t[1], t[2], epoch}
for ahead = 0, 1 do
  local ms = (tonumber(ARGV[4]) * (3 + ahead)) * 1000
  redis.call('SET', 'hatchway:mac:' .. (epoch + ahead), ARGV[5 + ahead], 'NX', 'PX', string.format('%d', ms))
end
for ahead = -1, 1 do
  answer[#answer + 1] = redis.call('GET', 'hatchway:mac:' .. (epoch + ahead)) or ''
end
answer[#answer + 1] = redis.call('GET', 'hatchway:identity') or ''
for place = 8, #ARGV do
  answer[#answer + 1] = redis.call('EXISTS', 'hatchway:engine:' .. ARGV[place])
end
return answer
""")

OTHERS = _script("""
-- KEYS: engines. ARGV: a run. The answer: the other runs that are alive. Those that are dead, and could not say so, are
-- forgotten: one whose lease had only run out is entered again by its renewal.
local others = {}
for _, run in ipairs(redis.call('HKEYS', KEYS[1])) do
  if redis.call('EXISTS', 'hatchway:engine:' .. run) == 0 then
    redis.call('HDEL', KEYS[1], run)
  elseif run ~= ARGV[1] then
    others[#others + 1] = run
  end
end
return others
""")

COUNT = _script("""
-- KEYS: a source's counter. ARGV: the most there may be, window ms. The answer: 0 if counted, else the ms to wait.
local count = tonumber(redis.call('GET', KEYS[1]) or '0')
if count >= tonumber(ARGV[1]) then return math.max(redis.call('PTTL', KEYS[1]), 1) end
if redis.call('INCR', KEYS[1]) == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 0
""")

UNCOUNT = _script("""
if tonumber(redis.call('GET', KEYS[1]) or '0') > 0 then redis.call('DECR', KEYS[1]) end
return 0
""")

CLAIM = _sending("""
-- KEYS: codes, recent, the claim. ARGV: digest, most wrong tries, then of the call: ticket, caller, body.
-- A code's value is run|pairing|wrong tries; any other goes, so that it does not keep all codes from being claimed.
-- The answer: {'claimed', run} and that run has the call in its inbox, the pairing ahead of the body; or {'used'},
-- {'wrong'}. Where UNCLAIM came first nothing is done.
if redis.call('EXISTS', KEYS[3]) == 1 then return {'used'} end
local held = redis.call('HGET', KEYS[1], ARGV[1])
if held then
  redis.call('HDEL', KEYS[1], ARGV[1])
  local run, pairing = string.match(held, '^(%w+)|([^|]+)|')
  if not run or redis.call('EXISTS', 'hatchway:engine:' .. run) == 0 then return {'used'} end
  local body = pairing .. '|' .. ARGV[5]
  send(run, 'kind', 'call', 'ticket', ARGV[3], 'caller', ARGV[4], 'method', 'claim', 'body', body)
  redis.call('SET', KEYS[3], run, 'PX', 60000)
  return {'claimed', run}
end
if redis.call('EXISTS', KEYS[2]) == 1 then return {'used'} end
local codes = redis.call('HGETALL', KEYS[1])
for place = 1, #codes, 2 do
  local run, pairing, wrong = string.match(codes[place + 1], '^(%w+)|([^|]+)|(%d+)$')
  if not run or redis.call('EXISTS', 'hatchway:engine:' .. run) == 0 then
    redis.call('HDEL', KEYS[1], codes[place])
  else
    wrong = tonumber(wrong) + 1
    if wrong >= tonumber(ARGV[2]) then
      redis.call('HDEL', KEYS[1], codes[place])
    else
      redis.call('HSET', KEYS[1], codes[place], run .. '|' .. pairing .. '|' .. wrong)
    end
    send(run, 'kind', 'wrong_code', 'pairing', pairing, 'count', tostring(wrong))
  end
end
return {'wrong'}
""")

UNCLAIM = _sending("""
-- KEYS: a claim. ARGV: its ticket. The caller does not know whether CLAIM was done, and waits no more: the run that has
-- the call is told, or a CLAIM that still comes is not done.
local run = redis.call('GET', KEYS[1])
if run and run ~= '' then
  send(run, 'kind', 'cancel', 'ticket', ARGV[1])
else
  redis.call('SET', KEYS[1], '', 'PX', 60000)
end
return 0
""")

SEND = _script("""
-- KEYS: inbox. ARGV: the fields of a message, each name before its value. What nobody reads goes after a minute.
redis.call('XADD', KEYS[1], 'MAXLEN', '~', '10000', '*', unpack(ARGV))
if redis.call('PTTL', KEYS[1]) < 0 then redis.call('PEXPIRE', KEYS[1], 60000) end
return 0
""")

PUBLISH = _script("""
-- KEYS: codes, recent. ARGV: digest, run, pairing, ms in which the code is no guess.
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. '|' .. ARGV[3] .. '|0')
redis.call('SET', KEYS[2], '1', 'PX', ARGV[4])
return 0
""")

ENTER = _script("""
-- KEYS: instances. ARGV: name, home, generation, version, 1 if live, row, an owner and the most live instances of it,
-- or '' twice.
-- A row is home|generation|version|live|..., and its home's alone; others may have its name once it has ended, or once
-- its home is forgotten. The answer: '' where the row is there now, or a later one of this home; else the host that has
-- the name, or '|' where the owner has as many as it may. (An owner's identity stands in the rows of its instances.)
local held = redis.call('HGET', KEYS[1], ARGV[1])
if held then
  local home, generation, version, live = string.match(held, '^([^|]*)|([^|]*)|(%d+)|(%d)|')
  if home and home ~= ARGV[2] then
    local known = redis.call('GET', 'hatchway:home:' .. home)
    if known and (live == '1' or ARGV[5] == '0') then return string.match(known, '|(.*)$') end
  elseif generation == ARGV[3] and tonumber(version) > tonumber(ARGV[4]) then
    return ''
  end
end
if ARGV[8] ~= '' then
  local rows, count = redis.call('HGETALL', KEYS[1]), 0
  for place = 1, #rows, 2 do
    local row = rows[place + 1]
    local home, live = string.match(row, '^([^|]*)|[^|]*|%d+|(%d)|')
    if rows[place] ~= ARGV[1] and live == '1' and string.find(row, ARGV[7], 1, true) then
      count = count + redis.call('EXISTS', 'hatchway:home:' .. home)
    end
  end
  if count >= tonumber(ARGV[8]) then return '|' end
end
redis.call('HSET', KEYS[1], ARGV[1], table.concat({ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]}, '|'))
return ''
""")

DROP = _script("""
-- KEYS: instances. ARGV: name, home, generation. The row goes where it is that home's, and of that generation.
local held = redis.call('HGET', KEYS[1], ARGV[1])
if held then
  local home, generation = string.match(held, '^([^|]*)|([^|]*)|')
  if home == ARGV[2] and generation == ARGV[3] then redis.call('HDEL', KEYS[1], ARGV[1]) end
end
return 0
""")

ROWS = _script("""
-- KEYS: instances. ARGV: a name, or nothing for all. The answer: for each its name, its row, its home as run|host, and
-- whether that run is alive. Of a home that is forgotten nothing is kept, nor a row that names none.
local rows = ARGV[1] and {ARGV[1], redis.call('HGET', KEYS[1], ARGV[1])} or redis.call('HGETALL', KEYS[1])
local homes, alive, answer = {}, {}, {}
for place = 1, #rows, 2 do
  local name, row = rows[place], rows[place + 1]
  if row then
    local home = string.match(row, '^([^|]*)|') or ''
    if homes[home] == nil then
      homes[home] = redis.call('GET', 'hatchway:home:' .. home)
      local run = homes[home] and string.match(homes[home], '^([^|]*)|')
      alive[home] = run and redis.call('EXISTS', 'hatchway:engine:' .. run) or 0
    end
    if homes[home] then
      for _, value in ipairs({name, row, homes[home], alive[home]}) do answer[#answer + 1] = value end
    else
      redis.call('HDEL', KEYS[1], name)
    end
  end
end
return answer
""")

CALL = _script("""
-- KEYS: inbox and lease of a run. ARGV: as of SEND. The answer: 1 where that run is alive and has the message, else 0.
if redis.call('EXISTS', KEYS[2]) == 0 then return 0 end
redis.call('XADD', KEYS[1], 'MAXLEN', '~', '10000', '*', unpack(ARGV))
if redis.call('PTTL', KEYS[1]) < 0 then redis.call('PEXPIRE', KEYS[1], 60000) end
return 1
""")

REPLY = _script("""
-- KEYS: the caller's inbox, the reply. ARGV: ticket, reply. The reply is kept beside the inbox, whose messages stay: it
-- may be large, and is taken at once. What nobody reads or takes goes by itself.
redis.call('SET', KEYS[2], ARGV[2], 'PX', 30000)
redis.call('XADD', KEYS[1], 'MAXLEN', '~', '10000', '*', 'kind', 'reply', 'ticket', ARGV[1])
if redis.call('PTTL', KEYS[1]) < 0 then redis.call('PEXPIRE', KEYS[1], 60000) end
return 0
""")

TAKE = _script("""
-- KEYS: a reply.
local held = redis.call('GET', KEYS[1])
redis.call('DEL', KEYS[1])
return held
""")
