// Package lua holds the scripts, one file each, and runs them. It knows their text; the packages admission and shaper define what their keys,
// arguments and replies mean.
//
// Rules for a script:
//
//   - The header is a contract: purpose and guarantee, KEYS, ARGV, Returns, Stores, Needs. A test reads it and compares it with what the body uses.
//   - Keys are declared, never made; all keys of a script share a hash tag.
//   - Time is the server's, read once, in integer microseconds.
//   - A whole number becomes text by string.format('%d'), a number that may have a fraction by '%.0f', and none by tostring, which loses the last
//     digits of a microsecond timestamp.
//   - Check everything, then write. A script does not roll back.
//   - Every script may be sent twice, because a reply may be lost.
//   - A piece of lib keeps no state between runs, because a Redis function creates it only once; see [AsFunctions].
//   - Every script but enqueue and probe begins with a write that Redis accepts when it is out of memory, so that buckets drain. These two begin with a
//     write that Redis refuses, so that nothing is half written.
//
// A script needs Redis 7.0 or newer.
//
// # What keeps the scripts fast
//
// No run takes more than 5 ms. A claim gets its jobs in one run, and these rules keep that run short:
//
//   - Jobs of one call that are alike but for their flow are decided together: each flow has one decision, one position and one time.
//   - A call of enqueue touches at most 64 flows. It takes jobs of these flows from other calls along.
//   - The meta of a job that was never claimed is one text for the whole claim. Settle compares it, and parses only what differs.
//   - Leases of one claim end together, a lease after its last slot. Outcomes are sent in groups that differ only in the job.
//   - The state of a flow names the lists that may hold something. Only flows that have had a turn in a claim need a heap.
//   - The key pace has the size of the largest body since the bucket was empty, so a claim knows how many bodies it may read at once.
//   - Remembered ids are two lists in the order in which they end, one for each window.
//   - The head of a stored job has a hash of all that the jobs of a batch have in common, so scripts parse no JSON.
//   - A run reads at most 64 KiB of budgets of flows and groups. With every slice of two budgets charged at each level, a claim takes 4 ms and a
//     settlement 3 ms.
//
// A fast path decides what the general path decides, only faster. The line that chooses it ends with --#slow and with the line that replaces it when
// fast paths are off. `make slowpaths` runs the tests of the scripts and of package shaper with all of them off.
package lua
