//go:build !soak

package redistest

// Soak says that tests may take long, as in `make soak` with the build tag soak: properties are checked ten times as often, figures measured at full
// length.
const Soak = false
