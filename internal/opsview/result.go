package opsview

import "github.com/tundish-io/tundish/shaper"

// Result is how a job ended, and what was answered.
type Result = shaper.ResultJSON
