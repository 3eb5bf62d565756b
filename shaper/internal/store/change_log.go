package store

import (
	"context"

	"github.com/tundish-io/tundish/shaper"
)

// logOwnChange logs what this process has just changed of the settings in force.
func (s *Store) logOwnChange(ctx context.Context, kind, name, key string) {
	record, err := s.Redis.HGet(ctx, key, fieldChanges).Result()
	if err != nil {
		return // the settings are written; the other processes log it
	}
	if list := readChanges("", record); len(list) > 0 && list[0].By == s.By {
		s.Log.With(kind, name).WarnContext(ctx, "this process changed the settings in force", changeAttributes(list[0])...)
	}
}

// changeAttributes are what a log tells of a change.
func changeAttributes(c shaper.SettingsChange) []any {
	return []any{"changes", ChangesText(c.Changes), "by", c.By, "at", c.At}
}
