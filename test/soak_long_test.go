//go:build soak

package test

import "time"

// soakFor is how long the soak of random operations goes on where no other time is given.
const soakFor = 40 * time.Second
