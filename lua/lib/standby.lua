-- standby.lua: the dispatchers that ask for jobs of a bucket only now and then, because others serve it.
--
-- A dispatcher becomes a standby when it finds no job: others have taken all slots, or reserved all turns. It stays one until it finds
-- a job. It asks again by itself, after a while. A claim that takes half of the free workers of its dispatcher
-- wakes one standby, the one that has waited longest: the dispatcher that claims may lack workers for the next slots.
-- So no dispatcher polls for that, and a claim wakes one at most, however many dispatchers there are.
--
-- The field standbys of the pace has their ids, each followed by a space, the first to be woken first. Above
-- MOST, the first ones are dropped: they may have died.

local standby = { MOST = 64 }

-- Returns the list without a dispatcher.
local function without(list, dispatcher)
  local from, to = string.find(list, dispatcher .. ' ', 1, true)
  return from and string.sub(list, 1, from - 1) .. string.sub(list, to + 1) or list
end

-- Records whether a dispatcher has found jobs. list is the previous field, or false.
function standby.note(pace, list, dispatcher, found)
  list = list or ''
  local now = without(list, dispatcher)
  if not found then
    now = now .. dispatcher .. ' '
    if select(2, string.gsub(now, ' ', '')) > standby.MOST then now = string.match(now, ' (.*)') end
  end
  if now ~= list then redis.call('HSET', pace, 'standbys', now) end
  return now
end

-- Wakes the first standby, if there is one.
function standby.wake(pace, list, channel, bucket)
  local first, others = string.match(list, '^(%S+) (.*)')
  if not first then return end
  redis.call('HSET', pace, 'standbys', others)
  redis.pcall('PUBLISH', channel, bucket .. ' ' .. first)
end

return standby
