package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tundish-io/tundish/internal/app"
	"github.com/tundish-io/tundish/internal/opsview"
	"github.com/tundish-io/tundish/shaper"
)

// moveView is a change of a bucket's pool, or of its name, that a dispatcher with the configuration would make.
type moveView struct {
	Bucket  string `json:"bucket"`
	Refused bool   `json:"refused"`
	Text    string `json:"text"`
}

// moves returns the buckets that are in another pool in Redis than in the configuration, and what a dispatcher with the configuration does with each.
func (s *station) moves(ctx context.Context) ([]moveView, error) {
	infos, err := s.operator.BucketInfos(ctx)
	if err != nil {
		return nil, err
	}
	configured, list := app.Buckets(s.config), []moveView{}
	for i := range infos {
		info := &infos[i]
		at := slices.IndexFunc(configured, func(b shaper.Bucket) bool { return b.Name == info.Name })
		if at < 0 || !info.Elsewhere && configured[at].RenamedFrom == "" {
			continue
		}
		text := opsview.PlannedRename(info)
		if info.Elsewhere {
			text = opsview.PlannedMove(info, &configured[at])
		}
		view := moveView{Bucket: info.Name, Text: fmt.Sprintf("bucket %q: %s", info.Name, text)}
		switch err := s.client.CheckPools(ctx, configured[at:at+1]); {
		case errors.Is(err, shaper.ErrTagChanged):
			view.Refused, view.Text = true, err.Error()
		case err != nil:
			return nil, err
		}
		if text != "" || view.Refused {
			list = append(list, view)
		}
	}
	return list, nil
}
