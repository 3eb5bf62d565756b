-- codes.lua: what numbers in calls and replies mean, by their names. codes.go has the same names for Go, and a test holds the two equal.

local codes = {
  -- How a bucket is parted: the argument levels of scripts, and the field flows of settings.
  NO_FLOWS = '0', FLOWS = '1', GROUPS = '2',

  -- How enqueue.lua answers: for each job, or for all jobs of a call that are alike.
  ONE_BY_ONE = 0, EVENLY = 1, EACH_ETA = 2,

  -- What enqueue.lua answers for a job.
  QUEUED = 1, SCHEDULED = 2, DUPLICATE = 3, ID_REUSED = 4, LIMITED = 5, IMPOSSIBLE = 6, BUCKET_FULL = 7, SCHEDULED_FULL = 8, SHED = 9,
  FLOW_FULL = 10, TOO_MANY_FLOWS = 11, GROUP_FULL = 12, TOO_MANY_GROUPS = 13, DEAD_FULL = 14, DEAD_TOO_LARGE = 15, FLOW_DISABLED = 16,
  WAIT_TOO_LONG = 17, ID_TAKEN = 18, FLOW_SCHEDULED_FULL = 19, GROUP_SCHEDULED_FULL = 20, TOO_MANY_OF_CALLER = 21,
  FLOW_MISSING = 22, FLOW_LACKS_URL = 23, OVER_BUDGET = 24, WAITS_FOR_BUDGET = 25,

  -- What a limit says of a job; SHARED is added where the shared key was asked.
  ALLOWED = 0, REFUSED = 1, NEVER_ALLOWED = 2, NOT_ASKED = 3, SHARED = 4,

  -- What becomes of a job, as settle.lua is told: HELD_ALONE is held and nothing else; EXHAUSTED is dead after its last attempt, unless
  -- that was the probe of a breaker; GONE is dead or kept, and its flow is disabled; UNDONE ends a job that is sent once and whose attempt
  -- failed.
  DONE = '1', RETRY = '2', DEAD = '3', RETURNED = '4', HELD = '5', HELD_ALONE = '6', EXHAUSTED = '7', GONE = '8', DROPPED = '9',
  UNDONE = '10',

  -- What an attempt says of the downstream, as settle.lua is told: nothing; it works; it asks for less; it does not work; the same for
  -- another job of the request that said so.
  SIGNAL_NONE = '0', SIGNAL_ACCEPTED = '1', SIGNAL_THROTTLED = '2', SIGNAL_FAILED = '3', SIGNAL_FAILED_TOO = '4',

  -- What settle.lua answers for a job: the lease was not the caller's any more; it was; it was, and the job is held though its attempt
  -- failed, because that was the probe of a breaker; it was, and what it used is charged to others or was before: see responses.lua.
  NOT_LEASED = 0, SETTLED = 1, SETTLED_HELD = 2, SETTLED_BEFORE = 3,

  -- What became of a flow, or of a breaker, as settle.lua tells it.
  BECAME_DISABLED = 1, BREAKER_OPENED = 2, BREAKER_CLOSED = 3,

  -- What claim.lua tells behind the jobs: what became of a job that is dead, that jobs are a batch, what a job charges, and that an
  -- earlier attempt of a job may have taken effect.
  CLAIM_EXPIRED = 0, CLAIM_TOO_OLD = -1, CLAIM_BATCH = -2, CLAIM_CHARGED = -3, CLAIM_OVER_BUDGET = -4,
  CLAIM_IN_DOUBT = -5,

  -- Why control_flow.lua changes nothing: a list would hold more than it may; or the bucket has batches.
  LIST_TOO_LONG = 1, BUDGETS_OF_BATCH = 2,

  -- What redrive.lua answers for a dead letter.
  REDRIVE_NONE = 0, REDRIVE_MOVED = 1, REDRIVE_FULL = 2, REDRIVE_THERE = 3, REDRIVE_FLOW_FULL = 4, REDRIVE_GROUP_FULL = 5,
  REDRIVE_DISABLED = 6,

  -- What configure.lua answers: written, or equal; other settings are in force; a newer schema is; the bucket holds jobs and is parted
  -- otherwise; the bucket has left this place; the data is of schema 1, and not empty; to a guest: there are settings, and they stay.
  CONFIGURE_WRITTEN = 0, CONFIGURE_OBEYS = 1, CONFIGURE_NEWER_SCHEMA = 2, CONFIGURE_OTHER_FLOWS = 3, CONFIGURE_LEFT = 4,
  CONFIGURE_OLD_DATA = 5, CONFIGURE_EXISTS = 6,
}

return codes
