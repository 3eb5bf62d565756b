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
package lua
