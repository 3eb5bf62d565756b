package dispatcher

import (
	"context"
	"time"

	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper/internal/codec"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// goOnPurging removes what a purge whose process has died has left.
func (d *bucketLoop) goOnPurging(ctx context.Context, w *sweepWatch, unpurged int64) error {
	if unpurged == 0 {
		return nil
	}
	left, err := d.finishPurge(ctx, purgeTurn)
	d.log.WarnContext(ctx, "a purge was left unfinished and goes on", "entries", unpurged, "left", left)
	if left > 0 {
		w.nextAudit = time.Time{}
	}
	return err
}

// finishPurge removes what a purge has left lying, for at most a while, and
// returns how many entries are left.
func (d *bucketLoop) finishPurge(ctx context.Context, while time.Duration) (left int64, err error) {
	for began := time.Now(); ; {
		none := codec.PathOf(d.Levels(), "", "")
		r, err := d.store.RunConfigured(ctx, d.Bucket, lua.Purge, d.Keys.Of(lua.Purge, none), "", 0, store.PurgeBatch, store.PurgeBytes, d.Levels(), none)
		if err != nil {
			return 0, err
		}
		_, _, _, left = r.Int(), r.Int(), r.Int(), r.Int()
		if r.Err() != nil || left == 0 || time.Since(began) > while {
			return left, r.Err()
		}
	}
}
