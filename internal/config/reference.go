package config

import _ "embed" // for Reference

// Reference is a configuration with every key, its default and its meaning. TestReference verifies it.
//
//go:embed reference.toml
var Reference string
