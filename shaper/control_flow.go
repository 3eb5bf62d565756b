package shaper

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
)

// ErrNoFlows says that a bucket has no flows. All methods of [Control] on flows return
// it; in a bucket that has some, any name of at most [MaxFlowBytes] is that of a flow.
var ErrNoFlows = errors.New("shaper: the bucket has no flows")

// FlowInfo is a flow in numbers.
type FlowInfo struct {
	Bucket   string
	Flow     string
	Group    string // "" in a bucket without groups
	Waiting  int64  // in its lists, and for their time
	InFlight int64  // leased

	// Turn is when a claim looks at it next, by the clock of Redis; zero: nothing waits,
	// or a claim has seen that it is paused or has as many in flight as it may.
	Turn time.Time

	Own OwnFlow // its own settings, and its pause
}

// PauseFlow stops departures from one flow until [Control.ResumeFlow], as
// [Control.Pause] does those from a bucket; the other flows go on. It may be one that
// has no jobs yet. One round trip.
func (c *Control) PauseFlow(ctx context.Context, bucket, flow, reason string) error {
	if !utf8.ValidString(reason) || len(reason) > MaxReason {
		return &InvalidChangeError{bucket, fmt.Errorf("reason: want UTF-8 text of at most %d bytes", MaxReason)}
	}
	before, _, err := c.controlFlow(ctx, bucket, flow, actionPause, jsonLine(pauseNote{c.by, reason}))
	if err == nil {
		c.note(ctx, bucket, actionPause, "flow", flow, "reason", reason, "before", before.Pause.text(), "after", "paused")
	}
	return err
}

// ResumeFlow lets a flow run again, at its pace, and reports whether it was paused. One
// round trip.
func (c *Control) ResumeFlow(ctx context.Context, bucket, flow string) (was bool, err error) {
	before, _, err := c.controlFlow(ctx, bucket, flow, actionResume)
	if err == nil {
		c.note(ctx, bucket, actionResume, "flow", flow, "before", before.Pause.text(), "after", "running")
	}
	return before.Pause != nil, err
}

func (p *Pause) text() string {
	if p == nil {
		return pauseText(0)
	}
	return pauseText(p.Since.UnixMicro())
}

// SetFlow gives one flow settings of its own, over those of all flows of its bucket,
// until they are cleared or [Control.DeleteFlowSettings]; what the patch does not name
// stays. They hold from the next script on, also for a flow that has no jobs yet. It
// returns all that the flow has of its own then. A patch that does not fit is an
// [*InvalidChangeError]. One round trip; with a rate or a burst three, to see whether
// they go together (four of a bucket that is not configured here).
func (c *Control) SetFlow(ctx context.Context, bucket, flow string, patch FlowPatch) (OwnFlow, error) {
	if patch.IsZero() {
		return OwnFlow{}, &InvalidChangeError{bucket, errors.New("nothing is changed: name a setting and its value")}
	}
	if err := c.fits(ctx, bucket, flow, &patch); err != nil {
		return OwnFlow{}, err
	}
	args := make([]any, len(patch.fields))
	names := make([]string, 0, len(patch.given))
	for i, value := range patch.fields {
		args[i] = value
	}
	for _, name := range FlowSettingNames() {
		if patch.given[name] {
			names = append(names, string(name))
		}
	}
	_, after, err := c.controlFlow(ctx, bucket, flow, actionSet, args...)
	if err == nil {
		c.note(ctx, bucket, actionSet, "flow", flow, "settings", strings.Join(names, ", ")) // no values: some are secret
	}
	return after, err
}

// DeleteFlowSettings lets one flow be as all of its bucket again; a pause stays. It
// reports whether the flow had settings. One round trip.
func (c *Control) DeleteFlowSettings(ctx context.Context, bucket, flow string) (had bool, err error) {
	before, _, err := c.controlFlow(ctx, bucket, flow, actionReset)
	if err == nil {
		c.note(ctx, bucket, actionReset, "flow", flow)
	}
	return !before.IsZero(), err
}

// controlFlow runs control_flow.lua and returns the settings before and after.
func (c *Control) controlFlow(ctx context.Context, bucket, flow, action string, args ...any) (before, after OwnFlow, err error) {
	if err := validFlow(bucket, flow); err != nil {
		return before, after, err
	}
	keysOf := func(k keys) []string { return k.forControlFlow(flow) }
	r, err := c.run(ctx, bucket, lua.ControlFlow, keysOf, append([]any{wakeChannel, bucket, flow, action}, args...)...)
	if err != nil {
		return before, after, err
	}
	_, has, old, now := r.Int(), r.Int(), r.Text(), r.Text()
	if r.Err() != nil {
		return before, after, fmt.Errorf("bucket %q: script control_flow: %w", bucket, r.Err())
	}
	if has == 0 {
		return before, after, fmt.Errorf("bucket %q: %w", bucket, ErrNoFlows)
	}
	before, _ = parseOwnFlow(old) // what nobody can read is replaced
	after, err = parseOwnFlow(now)
	return before, after, err
}

func validFlow(bucket, flow string) error {
	if len(flow) > MaxFlowBytes || !utf8.ValidString(flow) {
		return &InvalidChangeError{bucket, fmt.Errorf("flow: want at most %d bytes of UTF-8", MaxFlowBytes)}
	}
	return nil
}

// wantFlows fails where a bucket has no flows.
func (c *Control) wantFlows(ctx context.Context, bucket, flow string) error {
	if err := validFlow(bucket, flow); err != nil {
		return err
	}
	flows, err := c.hasFlows(ctx, bucket)
	if err == nil && !flows {
		err = fmt.Errorf("bucket %q: %w", bucket, ErrNoFlows)
	}
	return err
}

// fits reports whether the settings that a flow has with a patch go together: a burst
// has to come back in a time that scripts can reckon with.
func (c *Control) fits(ctx context.Context, bucket, flow string, patch *FlowPatch) error {
	if !patch.given[FlowRate] && !patch.given[FlowBurst] {
		return nil
	}
	info, err := c.Flow(ctx, bucket, flow)
	if err != nil {
		return err
	}
	all, err := c.ofAllFlows(ctx, bucket)
	if err != nil {
		return err
	}
	rate, burst := all.Rate, all.Burst
	own := patch.applied(info.Own)
	if !own.Rate.IsZero() {
		rate = own.Rate
	}
	if own.Burst != nil {
		burst = *own.Burst
	}
	if !rate.IsZero() && float64(burst)/rate.PerSecond() > maxBurstTime.Seconds() {
		return &InvalidChangeError{bucket, fmt.Errorf("burst: %d: at %s it takes more than %d days to come back", burst, rate, int(maxBurstTime.Hours()/24))}
	}
	return nil
}

// ofAllFlows are the settings of all flows of a bucket that are in force.
func (c *Control) ofAllFlows(ctx context.Context, bucket string) (FlowSettings, error) {
	ctx, cancel := context.WithTimeout(ctx, c.store.timeout)
	defer cancel()
	values, err := c.store.redis.HMGet(ctx, bucketKeys(bucket).conf(), "flow_rate_count", "flow_rate_per", "flow_burst").Result()
	if err != nil {
		return FlowSettings{}, fmt.Errorf("bucket %q: read the settings of its flows: %w", bucket, err)
	}
	var numbers [3]int64
	for i, value := range values {
		text, _ := value.(string)
		numbers[i], _ = strconv.ParseInt(text, 10, 64) // 0 without one
	}
	return FlowSettings{
		Rate:  admission.Rate{Count: numbers[0], Per: time.Duration(numbers[1]) * time.Microsecond, Unit: admission.UnitRequests},
		Burst: numbers[2],
	}, nil
}

// Flow returns what is known of one flow: zeros of one that has no jobs. One round trip;
// two of a bucket that is not configured here.
func (c *Control) Flow(ctx context.Context, bucket, flow string) (FlowInfo, error) {
	if err := c.wantFlows(ctx, bucket, flow); err != nil {
		return FlowInfo{}, err
	}
	infos, err := c.flowInfos(ctx, bucket, []string{flow})
	if err != nil {
		return FlowInfo{}, err
	}
	return infos[0], nil
}

// Parts of a listing of flows: first those that have jobs, then those that have
// settings and no jobs.
const (
	partStates   = "j"
	partSettings = "s"
)

// Flows returns flows of a bucket that have jobs or settings of their own, in no order,
// about limit of them (1 to 1000; others are cut to that), or none, from a cursor on
// that an earlier call has returned, "" at first; the cursor in the end is "". Flows that
// come or go meanwhile may be missing, and some may be told twice. Two or three round
// trips; one more of a bucket that is not configured here.
func (c *Control) Flows(ctx context.Context, bucket, cursor string, limit int) (infos []FlowInfo, next string, err error) {
	if err := c.wantFlows(ctx, bucket, ""); err != nil {
		return nil, "", err
	}
	part, at := partStates, uint64(0)
	if cursor != "" {
		text := ""
		if part, text = cursor[:1], cursor[1:]; part != partStates && part != partSettings {
			return nil, "", &InvalidChangeError{bucket, fmt.Errorf("cursor: %q is none of ours", cursor)}
		}
		if at, err = strconv.ParseUint(text, 10, 64); err != nil {
			return nil, "", &InvalidChangeError{bucket, fmt.Errorf("cursor: %q is none of ours", cursor)}
		}
	}
	keys := bucketKeys(bucket)
	key := keys.flows()
	if part == partSettings {
		key = keys.flowSettings()
	}
	ctx, cancel := context.WithTimeout(ctx, c.store.timeout)
	defer cancel()
	pairs, at, err := c.store.redis.HScan(ctx, key, at, "", int64(min(max(limit, 1), 1000))).Result()
	if err != nil {
		return nil, "", fmt.Errorf("bucket %q: list its flows: %w", bucket, err)
	}
	names := make([]string, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		names = append(names, pairs[i])
	}
	if part == partSettings {
		if names, err = c.without(ctx, keys.flows(), names); err != nil {
			return nil, "", fmt.Errorf("bucket %q: list its flows: %w", bucket, err)
		}
	}
	switch {
	case at != 0:
		next = part + strconv.FormatUint(at, 10)
	case part == partStates:
		next = partSettings + "0"
	}
	infos, err = c.flowInfos(ctx, bucket, names)
	return infos, next, err
}

// without returns the names that are no fields of a hash.
func (c *Control) without(ctx context.Context, key string, names []string) ([]string, error) {
	if len(names) == 0 {
		return nil, nil
	}
	there, err := c.store.redis.HMGet(ctx, key, names...).Result()
	if err != nil {
		return nil, err
	}
	var others []string
	for i, name := range names {
		if there[i] == nil {
			others = append(others, name)
		}
	}
	return others, nil
}

func (c *Control) flowInfos(ctx context.Context, bucket string, names []string) ([]FlowInfo, error) {
	if len(names) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.store.timeout)
	defer cancel()
	keys := bucketKeys(bucket)
	pipe := c.store.redis.Pipeline()
	states, own := pipe.HMGet(ctx, keys.flows(), names...), pipe.HMGet(ctx, keys.flowSettings(), names...)
	offset := pipe.HMGet(ctx, keys.pace(), "offset")
	turns := make([]*redis.FloatCmd, len(names))
	for i, name := range names {
		turns[i] = pipe.ZScore(ctx, keys.due(), name)
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("bucket %q: read its flows: %w", bucket, err)
	}
	ahead, _ := offset.Val()[0].(string)
	ofCalendar, _ := strconv.ParseInt(ahead, 10, 64) // 0 without one
	infos := make([]FlowInfo, len(names))
	for i, name := range names {
		text, _ := states.Val()[i].(string)
		state := parseFlowState(text)
		infos[i] = FlowInfo{Bucket: bucket, Flow: name, Waiting: state.waiting(), InFlight: state.inFlight}
		text, _ = own.Val()[i].(string)
		var err error
		if infos[i].Own, err = parseOwnFlow(text); err != nil {
			return nil, fmt.Errorf("bucket %q: flow %q: %w", bucket, name, err)
		}
		if turns[i].Err() == nil {
			infos[i].Turn = time.UnixMicro(int64(turns[i].Val()) - ofCalendar)
		}
	}
	return infos, nil
}
