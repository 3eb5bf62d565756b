//go:build !soak

package redistest

// Soak says that tests may take their time, as `make soak` has it with the build
// tag soak: properties are checked ten times as often, figures measured at full length.
const Soak = false
