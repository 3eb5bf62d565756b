-- codes.lua: names of the numbers in calls and replies. codes.go has the same names for Go, and a test compares the two.

local codes = {
  -- Whether a bucket has flows and groups: the argument levels of scripts, and the field flows of settings.
  NO_FLOWS = '0', FLOWS = '1', GROUPS = '2',

  -- The kind of reply of enqueue.lua: for each job, or for all jobs of a call that are alike.
  ONE_BY_ONE = 0, EVENLY = 1, EACH_ETA = 2,

  -- The result of enqueue.lua for a job.
  QUEUED = 1, SCHEDULED = 2, DUPLICATE = 3, ID_REUSED = 4, LIMITED = 5, IMPOSSIBLE = 6, BUCKET_FULL = 7, SCHEDULED_FULL = 8, SHED = 9,
  FLOW_FULL = 10, TOO_MANY_FLOWS = 11, GROUP_FULL = 12, TOO_MANY_GROUPS = 13, DEAD_FULL = 14, DEAD_TOO_LARGE = 15, FLOW_DISABLED = 16,
  WAIT_TOO_LONG = 17, ID_TAKEN = 18, FLOW_SCHEDULED_FULL = 19, GROUP_SCHEDULED_FULL = 20, TOO_MANY_OF_CALLER = 21,
  FLOW_MISSING = 22, FLOW_LACKS_URL = 23, OVER_BUDGET = 24, WAITS_FOR_BUDGET = 25,

  -- The verdict of a limit on a job; SHARED is added if the shared key was used.
  ALLOWED = 0, REFUSED = 1, NEVER_ALLOWED = 2, NOT_ASKED = 3, SHARED = 4,

  -- Outcomes of a job for settle.lua. HELD_ALONE holds only the job; EXHAUSTED is dead after its last attempt, unless
  -- that was the probe of a breaker; GONE is dead or kept, and its flow is disabled; UNDONE ends a job that is sent once and whose attempt
  -- failed.
  DONE = '1', RETRY = '2', DEAD = '3', RETURNED = '4', HELD = '5', HELD_ALONE = '6', EXHAUSTED = '7', GONE = '8', DROPPED = '9',
  UNDONE = '10',

  -- The signal of an attempt about the downstream, for settle.lua: none; it works; it asks for less; it does not work; the last
  -- again, for another job of the same request.
  SIGNAL_NONE = '0', SIGNAL_ACCEPTED = '1', SIGNAL_THROTTLED = '2', SIGNAL_FAILED = '3', SIGNAL_FAILED_TOO = '4',

  -- The result of settle.lua for a job: the caller no longer had the lease; settled; the job is held though its attempt
  -- failed, because that was the probe of a breaker; settled, but its usage is charged to others or was before: see responses.lua.
  NOT_LEASED = 0, SETTLED = 1, SETTLED_HELD = 2, SETTLED_BEFORE = 3,

  -- Changes of a flow or a breaker, reported by settle.lua.
  BECAME_DISABLED = 1, BREAKER_OPENED = 2, BREAKER_CLOSED = 3,

  -- Entries of claim.lua behind the jobs: why a job is dead, that jobs are a batch, the charges of a job, and that an
  -- earlier attempt of a job may have taken effect.
  CLAIM_EXPIRED = 0, CLAIM_TOO_OLD = -1, CLAIM_BATCH = -2, CLAIM_CHARGED = -3, CLAIM_OVER_BUDGET = -4,
  CLAIM_IN_DOUBT = -5,

  -- Why control_flow.lua changes nothing: a list would exceed its maximum; the bucket has batches; or max_flows flows or groups have
  -- settings of their own, and this one has none.
  LIST_TOO_LONG = 1, BUDGETS_OF_BATCH = 2, TOO_MANY_OWN = 3,

  -- The result of redrive.lua for a dead letter.
  REDRIVE_NONE = 0, REDRIVE_MOVED = 1, REDRIVE_FULL = 2, REDRIVE_THERE = 3, REDRIVE_FLOW_FULL = 4, REDRIVE_GROUP_FULL = 5,
  REDRIVE_DISABLED = 6,

  -- The result of configure.lua: written, or equal; other settings are effective; a newer schema is; the bucket holds jobs and would change
  -- its levels; the bucket has moved away; the caller does not own the settings, which stay.
  CONFIGURE_WRITTEN = 0, CONFIGURE_OBEYS = 1, CONFIGURE_NEWER_SCHEMA = 2, CONFIGURE_OTHER_FLOWS = 3, CONFIGURE_LEFT = 4,
  CONFIGURE_EXISTS = 5,
}

return codes
