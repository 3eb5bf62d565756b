package store

import (
	"slices"

	"github.com/tundish-io/tundish/shaper"
)

// What tests from outside see.
const CopiedAtOnce = copiedAtOnce

var ErrOvertaken = errOvertaken

const GenerationSuffix = generationSuffix

var PoolBuckets = poolBuckets
var PoolText = poolText
var TagOf = tagOf

// UnnamedFields are the fields of a bucket's settings and of its pool's that no described setting has.
func UnnamedFields(b *shaper.Bucket) (unnamed []string) {
	fields, err := settingsOf(b)
	if err != nil {
		panic(err)
	}
	fields = append(fields, poolSettingsOf(b.Pool)...)
	for i := 0; i < len(fields); i += 2 {
		name, _ := fields[i].(string)
		if !slices.ContainsFunc(describedSettings, func(d described) bool { return slices.Contains(d.fields, name) }) {
			unnamed = append(unnamed, name)
		}
	}
	return unnamed
}
