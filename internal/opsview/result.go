package opsview

import "github.com/tundish-io/tundish/shaper"

// Result is how a job ended, with the response.
type Result = shaper.ResultJSON
