package operator

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/schedule"
	"github.com/tundish-io/tundish/shaper/internal/store"
)

// Plan returns the plan that a bucket obeys now, whatever is configured here. It is the zero value if the bucket sends at all times, at its own rate.
// Two round trips.
func (b Bucket) Plan(ctx context.Context) (plan schedule.Plan, err error) {
	k, err := b.op.keysOf(ctx, b.name)
	if err != nil {
		return plan, err
	}
	ctx, cancel := context.WithTimeout(ctx, b.op.store.Timeout)
	defer cancel()
	text, err := b.op.store.Redis.HGet(ctx, k.Conf(), store.FieldPlan).Result()
	if err == redis.Nil || err == nil && text == "" { //nolint:errorlint // as the library has it
		return plan, nil
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &plan)
	}
	if err != nil {
		return plan, fmt.Errorf("bucket %q: read its plan: %w", b.name, err)
	}
	return plan, nil
}
