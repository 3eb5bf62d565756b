-- claim_reply.lua: the jobs that a claim hands out: its reply, their leases and metas, and the record of the claim, from which
-- a repeated claim is answered. Jobs of a batch (see batch.lua) have "#" and its number behind the claim in their metas.
--
-- The record is "claim time " and for each job "id slot epoch;". The first job has its slot there. The other jobs have the time
-- from that slot to their own. An epoch of 1 is omitted: most jobs are claimed once.

--#include lib/codec.lua
--#include lib/codes.lua
--#include lib/encoding.lua
--#include lib/flow.lua
--#include lib/in_chunks.lua

local claim_reply = {}

-- Opens the reply of a claim: its head, to which the jobs are added. offset: of the engine's clock; slots are given by that
-- clock, and returned by the server's. last_chance: crashes that put a job on its last chance.
function claim_reply.open(head, claim, offset, has_flows, last_chance)
  return { answer = head, head = #head + 1, size = #head + 1, claim = claim, offset = offset, has_flows = has_flows,
    last_chance = last_chance, count = 0, bytes = 0, again = {}, metas = {}, metas_size = 0, ids = {}, record = {}, died = {},
    first = 0, latest = 0, batches = {}, charges = {}, doubts = {}, followers = {}, owner = claim,
    fresh = codec.meta(codec.IN_FLIGHT, 1, 0, 0, 0, claim, '') }
end

local function add_job(out, id, slot, job, name, own)
  local answer, n = out.answer, out.size
  out.count = out.count + 1
  answer[n + 1], answer[n + 2], answer[n + 3] = id, slot, job
  if out.has_flows then
    answer[n + 4], answer[n + 5] = name, own and string.match(own, '\n(.*)$') or ''
    n = n + 2
  end
  out.size = n + 3
end

local function add_again(out, epoch, number, attempts)
  local again = out.again
  local n = #again
  again[n + 1], again[n + 2], again[n + 3], again[n + 4] = out.count, epoch, number, attempts
end

-- Records the meta of a job that is not handed out.
function claim_reply.note(out, id, stored)
  local metas, n = out.metas, out.metas_size
  metas[n + 1], metas[n + 2] = id, stored
  out.metas_size = n + 2
end

local function add_batch(out, first, size, number)
  local batches, n = out.batches, #out.batches
  batches[n + 1], batches[n + 2], batches[n + 3], batches[n + 4] = codes.CLAIM_BATCH, first, size, number + 0
end

-- Adds a job that became a dead letter: why (0 it has expired, -1 it is too old, -4 it reserves more than a budget).
function claim_reply.add_dead(out, why, id, name, attempts)
  local died = out.died
  local n = #died
  died[n + 1], died[n + 2], died[n + 3], died[n + 4] = why, id, name, attempts
end

-- Adds the charges of the nth job (see charges.lua).
function claim_reply.add_charges(out, nth, times, reserved)
  local list, n = out.charges, #out.charges
  list[n + 1], list[n + 2], list[n + 3], list[n + 4] = codes.CLAIM_CHARGED, nth, times, reserved
end

-- Adds that an earlier attempt of the last job may have taken effect: a dispatcher crashed with it, or its last attempt ended without a
-- response, or with one that leaves that open. last is the stored last attempt.
local function add_doubt(out, crashes, last)
  if crashes == 0 then
    if last == '' then return end
    local status = string.match(last, '^{"status":(%d+)')
    if status and status + 0 < 500 and status ~= '408' and status ~= '409' then return end
  end
  local doubts, n = out.doubts, #out.doubts
  doubts[n + 1], doubts[n + 2] = codes.CLAIM_IN_DOUBT, out.count
end

-- Hands out a job with its slot; stored is its meta, or false.
function claim_reply.add(out, id, at, job, stored, name, own)
  local slot = at - out.offset
  add_job(out, id, slot, job, name, own)
  local count = out.count
  out.ids[count] = id
  if slot > out.latest then out.latest = slot end
  local entry = id .. string.format(' %d', slot - out.first)
  if count == 1 then out.first = slot end
  if not stored then
    claim_reply.note(out, id, out.fresh)
    out.record[count] = entry
    return
  end
  local epoch, attempts, lost, crashes, _, last = codec.numbers(stored)
  epoch = epoch + 1
  claim_reply.note(out, id, codec.meta(codec.IN_FLIGHT, epoch, attempts, lost, crashes, out.owner, last))
  out.record[count] = entry .. string.format(' %d', epoch)
  add_again(out, epoch, attempts + lost + 1, attempts)
  add_doubt(out, crashes, last)
end

-- Hands out a batch with its number: a job as in claim_reply.add, and its further members (see batch.gather). The flow's own settings
-- are with the first job.
function claim_reply.add_batch(out, number, id, at, job, stored, name, own, followers)
  local noted, n = out.followers, #out.followers
  local fresh = out.fresh
  out.owner = out.claim .. '#' .. number
  out.fresh = codec.meta(codec.IN_FLIGHT, 1, 0, 0, 0, out.owner, '')
  add_batch(out, out.count + 1, 1 + #followers, number)
  claim_reply.add(out, id, at, job, stored, name, own)
  for i, follower in ipairs(followers) do
    noted[n + 2 * i - 1], noted[n + 2 * i] = number, follower.id
    claim_reply.add(out, follower.id, at, follower.job, follower.stored, name, nil)
  end
  out.owner, out.fresh = out.claim, fresh
end

-- Returns whether a record is of that claim.
function claim_reply.is_of(record, claim) return string.sub(record, 1, #claim + 1) == claim .. ' ' end

-- Parses the jobs of a record: { id, slot, epoch } for each.
function claim_reply.jobs(record)
  local jobs, first = {}, 0
  for id, slot, epoch in string.gmatch(string.match(record, '^%S+ %d+ (.*)$') or '', '(%S+) (%-?%d+) ?(%d*);') do
    slot = tonumber(slot) + first
    if #jobs == 0 then first = slot end
    jobs[#jobs + 1] = { id = id, slot = slot, epoch = epoch == '' and '1' or epoch }
  end
  return jobs
end

-- Hands out the jobs of a record again, without the jobs that were taken back meanwhile. parted is '1' with flows, '2' in groups, else
-- false. Returns the number of the job on its last chance, 0 none.
function claim_reply.replay(out, record, body, meta, flow_settings, parted)
  local lone, batches, before = 0, out.batches, nil
  for _, leased in ipairs(claim_reply.jobs(record)) do
    local id, slot, epoch = leased.id, leased.slot, leased.epoch
    local stored, job = redis.call('HGET', meta, id), redis.call('HGET', body, id)
    if stored and job then
      local state, now_epoch, attempts, lost, crashes, owner, last = string.match(stored, codec.META)
      local maker, number = string.match(owner or '', '^([^#]*)#?(.*)$')
      if state == codec.IN_FLIGHT and now_epoch == epoch and maker == out.claim then
        local name, rides = parted and flow.from_job(job, parted == codes.GROUPS), number ~= '' and number == before
        add_job(out, id, slot, job, name, name and not rides and redis.call('HGET', flow_settings, name))
        if rides then
          batches[#batches - 1] = batches[#batches - 1] + 1
        elseif number ~= '' then
          add_batch(out, out.count, 1, number)
        end
        before = number
        add_again(out, tonumber(epoch), tonumber(attempts) + tonumber(lost) + 1, tonumber(attempts))
        add_doubt(out, tonumber(crashes), last)
        if codec.on_last_chance(stored, out.last_chance) then lone = out.count end
      end
    end
  end
  return lone
end


-- Writes leases, batch members, metas and the record. All leases of a claim end together: a lease after its last slot. leased: the number
-- of leases before.
function claim_reply.write(out, leases, leased, followers, meta, claims, dispatcher, now, lease)
  encoding.hash(meta, leased, leased + out.count, function() in_chunks('HSET', meta, out.metas) end)
  if out.count == 0 then return end
  local deadlines, deadline = {}, string.format('%d', out.latest + lease)
  for i, id in ipairs(out.ids) do deadlines[2 * i - 1], deadlines[2 * i] = deadline, id end
  encoding.zset(leases, leased, leased + out.count, function() in_chunks('ZADD', leases, deadlines) end)
  in_chunks('ZADD', followers, out.followers)
  redis.call('HSET', claims, dispatcher, string.format('%s %d ', out.claim, now) .. table.concat(out.record, ';') .. ';')
end

-- Returns the reply: its head, the number of jobs, the jobs, the details of jobs claimed before, the dead letters, the batches,
-- the charges, and which jobs are in doubt.
function claim_reply.reply(out)
  local answer, again, died, batches, charged, n = out.answer, out.again, out.died, out.batches, out.charges, out.size
  local doubts = out.doubts
  answer[out.head] = out.count
  for i = 1, #again do answer[n + i] = again[i] end
  for i = 1, #died do answer[n + #again + i] = died[i] end
  n = n + #again + #died
  for i = 1, #batches do answer[n + i] = batches[i] end
  n = n + #batches
  for i = 1, #charged do answer[n + i] = charged[i] end
  n = n + #charged
  for i = 1, #doubts do answer[n + i] = doubts[i] end
  return answer
end

return claim_reply
