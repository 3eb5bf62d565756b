package store

import (
	"context"
	"log/slog"

	"github.com/tundish-io/tundish/shaper"
)

// logOwnChange logs what this process has just changed of the settings in force.
func (s *Store) logOwnChange(ctx context.Context, kind, name, key string) {
	record, err := s.Redis.HGet(ctx, key, fieldChanges).Result()
	if err != nil {
		return // the settings are written; the other processes log it
	}
	if list := readChanges("", record, 0); len(list) > 0 && list[0].By == s.By {
		s.logChange(ctx, s.Log.With(kind, name), "this process changed the settings in force", list[0])
	}
}

func (s *Store) logChange(ctx context.Context, log *slog.Logger, text string, c shaper.SettingsChange) {
	log.WarnContext(ctx, text, "changes", ChangesText(c.Changes), "by", c.By, "at", c.At)
}
