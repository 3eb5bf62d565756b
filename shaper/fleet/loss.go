package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// KeepLoss stores a loss of data for [LossKept], so that processes that start later report it too. It replaces the one before. One round trip; an error
// where Redis does not answer.
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

// LastLoss returns the loss of data that is stored, nil if there is none. One round trip; an error where Redis does not answer.
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
