// Package store knows where the keys of a bucket are, stores its configuration in Redis, and runs scripts.
//
// # How a change takes effect
//
// A change goes into the key settings, which every script reads, so the next script obeys it. An override replaces the field, and configure.lua keeps
// the configured value as own:<field> until the reset. A PUBLISH wakes sleeping dispatchers. Where Redis refuses the PUBLISH, the script goes on, and
// the patrol of a dispatcher finds the work. After a change of the rate, burst or quotas of all flows, claims put the waiting flows at their new turns,
// 64 at a time (the field recheck, see reserve.lua).
//
// The limits of a bucket have a number that every change raises (limits_rev). A script that gets an older number returns that, and the caller reads the
// settings again.
//
// # How a bucket changes its pool
//
// A bucket in another pool has other keys, because the tag of its keys is the pool's name. In a Cluster the new keys are in another slot, and no
// script can touch both: there a bucket moves while it is empty. Elsewhere it moves with all its keys, but without leases, because an outcome goes to
// the old keys. The index tundish:buckets has the tag and a generation, which each change raises. The settings under each tag have the lowest
// generation that is obeyed there. The steps of relocate.lua:
//
//  1. leave checks that no dispatcher can extend a lease of the bucket; otherwise it holds the bucket for 3 s. In a Cluster it checks that the bucket
//     is empty. It moves the settings to parked_settings and raises the generation under the old tag. From then on every script returns that the bucket is
//     not configured.
//  2. begin clears the new keys and raises the generation there.
//  3. carry renames all keys, and replaces none that was carried before. In a Cluster, put copies overrides, settings of flows and groups, the pace and
//     the quotas. A write of an older generation is refused.
//  4. assign.lua writes the new tag into the index, unless another process did. This write decides.
//  5. configure.lua makes the copied settings effective under the new tag, and clear removes the old keys.
//
// Each step may be repeated, and any process completes a change in progress. Two fields stay under the old tag for ever: they refuse dispatchers with
// the old configuration.
//
// # How a bucket is renamed
//
// The name in the keys of a bucket is its first name ([shaper.Bucket.KeyName]). A rename changes only the name that processes show, so processes with
// either name run the same scripts on the same keys. Messages of scripts (tundish:wake, waiters, tickets) have the first name too. The index has an
// entry for each later name: a process that knows only that name finds the keys by it. The authoritative process writes its name as the field name of
// settings. An authoritative process whose configuration gives another first name than the index is refused.
package store
