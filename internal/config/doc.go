// Package config reads the configuration of Tundish's programs: defaults, then
// config.toml, then TUNDISH_ variables of the environment, the later over the
// earlier. It is the only package that knows viper.
//
// [Load] is strict and has no side effects. It returns a [Config] in
// which every value is in range and every relation holds, or [Faults]: all of
// them at once, each with its file, line, key, value and the valid values.
//
// The fields of type settings are the only list of keys. Names, defaults,
// variables, the check for unknown keys and the output of [Config.Effective]
// are all derived from it.
package config
