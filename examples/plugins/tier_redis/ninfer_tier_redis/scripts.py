"""Lua scripts: every change of value, index, accounting and log is one of them, so it happens whole or not at all.

Each script that may find no room in the server's memory begins with a command that such a server refuses, before
anything was changed. Keys are always: meta, index, log, then those of the image.
"""

from typing import Final

MAX_LOG: Final = 100_000
"""Changes that are remembered; who was away for longer lists everything again."""

_SHARED: Final = f"""
local function charge(entry) return tonumber(string.sub(entry, 1, 12)) or 0 end
local function numbered(entry, number)
  return string.sub(entry, 1, 12) .. string.format('%016.0f', number) .. string.sub(entry, 29)
end
local function answer(code)
  local meta = redis.call('HMGET', KEYS[1], 'used', 'capacity', 'seq', 'epoch')
  return {{code, tonumber(meta[1] or 0), redis.call('HLEN', KEYS[2]), tonumber(meta[2] or 0),
          tonumber(meta[3] or 0), meta[4] or ''}}
end
local function note(seq, change, field, writer)
  redis.call('XADD', KEYS[3], 'MAXLEN', '~', {MAX_LOG}, string.format('%.0f-0', seq),
             'change', change, 'image', field, 'writer', writer)
end
"""

ADDED: Final = b"added"
REMOVED: Final = b"removed"

GONE: Final = -2
"""Code of a script that found no meta: somebody deleted it, or everything. `OPEN` makes it again."""

NO_VALUE: Final = -1
FULL: Final = 0
DONE: Final = 1

OPEN: Final = (
    _SHARED
    + """
redis.call('XLEN', KEYS[3])
redis.call('HLEN', KEYS[2])
local before = redis.call('HGET', KEYS[1], 'capacity')
if not before then
  local used = 0
  for _, entry in ipairs(redis.call('HVALS', KEYS[2])) do used = used + charge(entry) end
  redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'capacity', ARGV[2], 'used', string.format('%.0f', used), 'seq', '0')
  redis.call('DEL', KEYS[3])
elseif ARGV[3] == 'set' then
  redis.call('HSET', KEYS[1], 'capacity', ARGV[2])
end
return answer(tonumber(before or -1))
"""
)
"""ARGV: new epoch, capacity, 'set' or 'keep'. Code: the capacity before, -1 if there was none."""

COMMIT: Final = (
    _SHARED
    + f"""
local meta = redis.call('HMGET', KEYS[1], 'used', 'capacity')
if not meta[2] then redis.call('DEL', KEYS[5]) return answer({GONE}) end
redis.call('XLEN', KEYS[3])
local old = redis.call('HGET', KEYS[2], ARGV[1])
local more = charge(ARGV[2]) - (old and charge(old) or 0)
if more > 0 and tonumber(meta[1]) + more > tonumber(meta[2]) then
  redis.call('DEL', KEYS[5])
  return answer({FULL})
end
if redis.call('EXISTS', KEYS[5]) == 0 then return answer({NO_VALUE}) end
local seq = redis.call('HINCRBY', KEYS[1], 'seq', 1)
redis.call('HINCRBY', KEYS[1], 'used', more)
redis.call('HSET', KEYS[2], ARGV[1], numbered(ARGV[2], seq))
redis.call('RENAME', KEYS[5], KEYS[4])
redis.call('PERSIST', KEYS[4])
note(seq, 'added', ARGV[1], ARGV[3])
return answer({DONE})
"""
)
"""ARGV: field, entry, writer. The fifth key holds the new value, which becomes the fourth."""

DROP: Final = (
    _SHARED
    + f"""
if redis.call('HEXISTS', KEYS[1], 'capacity') == 0 then return answer({GONE}) end
redis.call('XLEN', KEYS[3])
local old = redis.call('HGET', KEYS[2], ARGV[1])
if not old or (ARGV[3] ~= '' and ARGV[3] ~= numbered(old, 0)) then return answer(0) end
redis.call('HDEL', KEYS[2], ARGV[1])
local existed = redis.call('UNLINK', KEYS[4])
redis.call('HINCRBY', KEYS[1], 'used', -charge(old))
note(redis.call('HINCRBY', KEYS[1], 'seq', 1), 'removed', ARGV[1], ARGV[2])
return answer(existed)
"""
)
"""ARGV: field, writer, entry (number 0) that it must have or ''. Code: 1 if a value was there."""

SWEEP: Final = """
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then return 0 end
return redis.call('UNLINK', KEYS[2])
"""
"""Removes a value that the index does not know. Keys: index, image. ARGV: field."""

LOOK: Final = _SHARED + "return answer(0)"
"""Tells the accounting."""

AUDIT: Final = (
    _SHARED
    + """
local sum = 0
for _, entry in ipairs(redis.call('HVALS', KEYS[2])) do sum = sum + charge(entry) end
return answer(sum)
"""
)
"""Code: the sum of all charges in the index."""
