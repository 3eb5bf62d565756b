package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// KeepLoss stores a loss of data for [LossKept], so that processes that start later report it too. It replaces the previous loss. It takes one round
// trip, and returns an error if Redis does not respond.
func KeepLoss(ctx context.Context, client redis.UniversalClient, loss *DataLoss) error {
	text, err := json.Marshal(loss)
	if err == nil {
		err = client.Set(ctx, lossKey, text, LossKept).Err()
	}
	if err != nil {
		return fmt.Errorf("store that Redis lost data: %w", err)
	}
	return nil
}

// LastLoss returns the stored loss of data, nil if there is none. It takes one round trip, and returns an error if Redis does not respond.
func LastLoss(ctx context.Context, client redis.UniversalClient) (*DataLoss, error) {
	text, err := client.Get(ctx, lossKey).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	loss := &DataLoss{}
	if err == nil {
		err = json.Unmarshal(text, loss)
	}
	if err != nil {
		return nil, fmt.Errorf("read whether Redis lost data: %w", err)
	}
	return loss, nil
}
