//go:build soak

package test

// long says that the long measurements are asked for.
const long = true
