-- turns.lua: whose turn it is: a binary heap of flows, the one that goes first at
-- its top. Its text goes in front of claim.lua. A flow goes at `at`; of two that go
-- at once, the one that was placed first.

local turns = { placed = 0 }

local function before(a, b) return a.at < b.at or (a.at == b.at and a.place < b.place) end

local function sift_down(heap, i)
  local n, sifted = #heap, heap[i]
  while 2 * i <= n do
    local child = 2 * i
    if child < n and before(heap[child + 1], heap[child]) then child = child + 1 end
    if not before(heap[child], sifted) then break end
    heap[i] = heap[child]
    i = child
  end
  heap[i] = sifted
end

-- Makes a heap of a list of flows, which are placed in its order.
function turns.order(heap)
  for i, f in ipairs(heap) do f.place = i end
  turns.placed = #heap
  for i = math.floor(#heap / 2), 1, -1 do sift_down(heap, i) end
end

-- The top goes at another time now.
function turns.moved(heap)
  turns.placed = turns.placed + 1
  heap[1].place = turns.placed
  sift_down(heap, 1)
end

-- Takes the top off.
function turns.off(heap)
  heap[1] = heap[#heap]
  heap[#heap] = nil
  if #heap > 0 then sift_down(heap, 1) end
end
