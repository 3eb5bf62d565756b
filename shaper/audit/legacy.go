package audit

import (
	"context"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// Records of the previous version are read until Redis removes them, 90 days after the last one was written. A process of that version that still
// runs writes them too.
const (
	legacyAll     = "tundish:{fleet}:audit"
	legacyOwn     = "tundish:{fleet}:audit:" // and the name of a bucket
	legacyRecords = "tundish:{fleet}:audit_records"
)

// legacyTogether is how many records of one microsecond are told apart.
const legacyTogether = 100

func (l *Log) legacyEntries(ctx context.Context, bucket string, after *entry, most int) ([]entry, error) {
	key, from := legacyAll, "+inf"
	if bucket != "" {
		key = legacyOwn + bucket
	}
	if after != nil {
		from = strconv.FormatInt(after.at, 10)
	}
	found, err := l.redis.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{Key: key, Start: from, Stop: "-inf", ByScore: true, Rev: true, Count: int64(most + legacyTogether)}).Result()
	if err != nil {
		return nil, err
	}
	var entries []entry
	for _, z := range found {
		id, _ := z.Member.(string)
		e := entry{int64(z.Score), id, true}
		if after == nil || older(*after, e) < 0 {
			entries = append(entries, e)
		}
	}
	return entries[:min(len(entries), most)], nil
}
