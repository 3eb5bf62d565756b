// Package cli is the command lines of the two programs: [RunProducer] and
// [RunDispatcher]. It wires the other packages together and says in words what
// they answer; rules of its own it has none.
//
// Data goes to stdout, everything else to stderr. What went wrong is said once,
// as `program: what, why, what to do`, and is the exit code:
//
//	0  done
//	1  failed
//	2  wrong usage or configuration
//	3  refused by admission: try again later
//	4  not found
//	5  Redis or the server is unreachable
//
// Arguments, environment and streams are parameters, so that a test calls what
// main calls.
package cli
