// Package cli is the command lines of the two programs: [RunProducer] and [RunDispatcher]. It prints the results of the other packages, and has no rules
// of its own.
//
// Data goes to stdout, everything else to stderr. An error is printed once, as `program: what, why, what to do`, and becomes the exit code:
//
//	0  done
//	1  failed
//	2  wrong usage or configuration
//	3  refused by admission: try again later
//	4  not found
//	5  Redis or the server is unreachable
//
// Arguments, environment and streams are parameters, so that a test makes the same call as main.
package cli
