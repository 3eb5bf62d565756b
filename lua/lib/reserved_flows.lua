-- reserved_flows.lua: the flows that reserve_flows.lua reserved and a claim names: which of them may send, and their jobs.

--#include lib/drr.lua
--#include lib/pacer.lua
--#include lib/plain_turns.lua
--#include lib/queue.lua
--#include lib/quota.lua

local reserved_flows = {}

-- Opens flows of a bucket. given: see drr.read_named; of_all and quotas: the settings for all flows. ask has at_once, the number of wanted
-- jobs; earliest and latest, when they can go; lease; and may_be_plain. Returns the flows that are not plain; the flows among them that
-- no bound of their own holds; and the plain ones (see plain_turns.lua), nil without any.
function reserved_flows.open(b, reader, of_all, quotas, given, ask)
  local each = math.ceil(ask.at_once / math.max(#given.numbers, 1))
  local upto, windows, ready = string.format('%d', each), quota.windows(quotas), {}
  local plain = each == 1 and ask.may_be_plain and not b.recheck and plain_turns.open(reader, given, of_all, windows, ask.earliest) or nil
  local named = drr.flows(b.clock, b.since, given, of_all, windows, ask.lease)
  for _, f in ipairs(named) do
    f.queue = queue.open(f.base, f.from > ask.latest and 0 or each, upto, f.name, f.state.filled)
    if not pacer.is_held(f) then ready[#ready + 1] = f end
  end
  return named, ready, plain
end

return reserved_flows
