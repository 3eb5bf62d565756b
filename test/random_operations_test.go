package test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tundish-io/tundish/admission"
	"github.com/tundish-io/tundish/lua"
	"github.com/tundish-io/tundish/shaper"
	"github.com/tundish-io/tundish/shaper/operator"
	"github.com/tundish-io/tundish/shaper/producer"
)

// pick is one of some, at random.
func pick[T any](r *rand.Rand, some ...T) T { return some[r.IntN(len(some))] }

// upTo is a time from nothing to longest.
func upTo(r *rand.Rand, longest time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(longest)))
}

// The names of flows and groups, among them some that few jobs have.
func someFlow(r *rand.Rand) string {
	if r.IntN(20) == 0 {
		return fmt.Sprint("rare", r.IntN(100))
	}
	return fmt.Sprint("f", r.IntN(5))
}

func someGroup(r *rand.Rand) string { return fmt.Sprint("g", r.IntN(3)) }

// newJob is one with everything that a job may say. Its id says where it belongs.
func (s *soak) newJob(r *rand.Rand) shaper.Job {
	job := shaper.Job{
		Bucket: pick(r, plainBucket, flowsBucket, groupsBucket), Payload: []byte(`{"n":1}`),
		Priority: pick(r, shaper.Priorities()...), Cost: 1 + r.Int64N(3),
		Identity: admission.Identity{Caller: fmt.Sprint("c", r.IntN(soakCallers)), Tier: "many"},
	}
	if job.Identity.Caller == "c0" {
		job.Identity.Tier = ""
	}
	switch job.Bucket {
	case flowsBucket:
		job.Flow = someFlow(r)
	case groupsBucket:
		job.Flow, job.Group = someFlow(r), someGroup(r)
	}
	switch r.IntN(10) {
	case 0:
		job.Delay = upTo(r, 1500*time.Millisecond)
	case 1:
		job.NotBefore = time.Now().Add(upTo(r, 1500*time.Millisecond) - 200*time.Millisecond)
	}
	if r.IntN(10) == 0 {
		job.ExpiresIn = upTo(r, 2*time.Second).Truncate(time.Microsecond) + time.Microsecond
	}
	job.ID = soakID(job.Bucket, job.Group, job.Flow, s.serial.Add(1))
	return job
}

// enqueue puts jobs in through a producer: again under the same ids until there is an
// answer. Some of them were there before, some under an id that is another's.
func (s *soak) enqueue(ctx context.Context, r *rand.Rand, from *soakProducer) {
	jobs := make([]shaper.Job, 1+r.IntN(pick(r, 8, 8, 8, 8, 8, 8, 8, 60)))
	others := make([]bool, len(jobs)) // those with the id of another job
	for i := range jobs {
		jobs[i] = s.newJob(r)
		if old, ok := s.book.some(r); ok && r.IntN(10) == 0 {
			if jobs[i] = old; r.IntN(3) == 0 && s.book.isIn(old.ID) {
				jobs[i].Payload, others[i] = []byte(`{"n":2}`), true
			}
		}
	}
	for i, job := range jobs {
		if !others[i] {
			s.book.asked(job)
			s.history.Unknown(job.ID)
		}
	}
	const tries = 3
	for range tries {
		receipts, err := from.client.Enqueue(context.WithoutCancel(ctx), jobs...)
		if err != nil {
			if fault, ok := errors.AsType[*producer.JobError](err); ok {
				s.t.Errorf("enqueue: %v", fault)
				return
			}
			s.count("enqueue without answer")
			continue
		}
		for i, receipt := range receipts {
			s.receive(jobs[i], others[i], receipt)
		}
		return
	}
}

// receive takes in what was answered for a job.
func (s *soak) receive(job shaper.Job, other bool, receipt shaper.Receipt) {
	switch refusal := receipt.Refusal; {
	case other && refusal == nil:
		s.t.Errorf("job %s was taken in with other content under the same id: %+v", job.ID, receipt)
	case refusal != nil:
		s.count("refused " + string(refusal.Reason))
		if !other && refusal.Reason == shaper.ReasonLimit {
			s.book.limited(job)
		}
		if !other {
			s.history.Refused(1, time.Now())
		}
	default:
		if receipt.Duplicate {
			s.count("duplicate")
		} else {
			s.count("admitted")
			s.book.change(job.ID, func(j *soakJob) { j.first++ })
		}
		s.book.admitted(job.ID)
		s.history.Admitted(job.ID, time.Now())
	}
}

// operate does one thing that an operator may do.
func (s *soak) operate(r *rand.Rand) {
	ctx := context.WithoutCancel(s.t.Context())
	bucket := pick(r, plainBucket, flowsBucket, groupsBucket)
	control, flow, group := s.control, someFlow(r), someGroup(r)
	what, err := "", error(nil)
	switch n := r.IntN(100); {
	case n < 25:
		what = "cancel"
		err = s.cancel(ctx, r)
	case n < 29:
		what = "purge"
		_, err = control.Bucket(bucket).Purge(ctx, operator.PurgeOptions{KeepLater: r.IntN(2) == 0})
	case n < 33:
		what = "purge flow"
		_, err = control.Bucket(flowsBucket).Flow(flow).Purge(ctx, operator.PurgeOptions{})
	case n < 36:
		what = "purge group"
		_, err = control.Bucket(groupsBucket).Group(group).Purge(ctx, operator.PurgeOptions{})
	case n < 48:
		what = "redrive"
		_, err = s.operator.As("soak").Bucket(bucket).Dead().RedriveAll(ctx, 1+r.IntN(20))
	case n < 52:
		what = "drop dead"
		err = s.dropDead(ctx, bucket)
	case n < 60:
		what = "set bucket"
		err = s.setRate(bucket, pick(r, 30, 60, 100), func(patch operator.BucketPatch) error {
			_, err := control.Bucket(bucket).Set(ctx, patch)
			return err
		})
	case n < 72:
		what = "set burst"
		err = setBursts(r, 10, func(patch operator.BucketPatch) error {
			_, err := control.Bucket(bucket).Set(ctx, patch)
			return err
		})
	case n < 78:
		what = "set burst of pool"
		err = setBursts(r, 12, func(patch operator.BucketPatch) error {
			_, err := control.Pool(soakPool).Set(ctx, patch)
			return err
		})
	case n < 83:
		what = "set pool"
		err = s.setRate(soakPool, pick(r, 40, 80, 120), func(patch operator.BucketPatch) error {
			_, err := control.Pool(soakPool).Set(ctx, patch)
			return err
		})
	case n < 90:
		what = "set flow"
		err = s.setFlow(flowsBucket+"/"+flow, r, func(patch operator.FlowPatch) error {
			_, err := control.Bucket(flowsBucket).Flow(flow).Set(ctx, patch)
			return err
		})
	default:
		what = "look"
		if job, ok := s.book.some(r); ok {
			if _, err = s.operator.Bucket(job.Bucket).Job(job.ID).Info(ctx); errors.Is(err, shaper.ErrNotFound) {
				err = nil // it may have been refused
			}
		}
	}
	s.count(what)
	if err != nil {
		s.t.Errorf("%s: %v", what, err)
	}
}

// cancel cancels some job that was let in.
func (s *soak) cancel(ctx context.Context, r *rand.Rand) error {
	job, ok := s.book.late(r)
	if !ok {
		return nil
	}
	state, err := s.operator.As("soak").Bucket(job.Bucket).Job(job.ID).Cancel(ctx)
	if errors.Is(err, shaper.ErrNotFound) {
		return nil
	}
	if state == shaper.StateCancelled {
		s.book.wasCancelled(job.ID, time.Now())
	}
	return err
}

// dropDead drops the oldest dead letter.
func (s *soak) dropDead(ctx context.Context, bucket string) error {
	letters, err := s.operator.Bucket(bucket).Dead().List(ctx, 0, 1)
	if err != nil || len(letters) == 0 {
		return err
	}
	state, err := s.operator.As("soak").Bucket(bucket).Dead().Drop(ctx, letters[0].ID)
	if state == shaper.StateDropped {
		s.book.wasDropped(letters[0].ID)
	}
	return err
}

// setRate sets a rate and notes it for those who judge.
func (s *soak) setRate(path string, rate int, set func(operator.BucketPatch) error) error {
	var patch operator.BucketPatch
	if err := patch.Put(shaper.SettingRate, fmt.Sprintf("%d/s", rate)); err != nil {
		return err
	}
	began := time.Now()
	err := set(patch)
	s.pacer(path).changed(began, time.Now(), float64(rate))
	return err
}

// setBursts takes a burst away and gives it back: that mints no departures.
func setBursts(r *rand.Rand, burst int, set func(operator.BucketPatch) error) error {
	for _, n := range []int{1, burst, 1, burst} {
		var patch operator.BucketPatch
		if err := patch.Put(shaper.SettingBurst, fmt.Sprint(n)); err != nil {
			return err
		}
		if err := set(patch); err != nil {
			return err
		}
		<-time.After(upTo(r, 60*time.Millisecond))
	}
	return nil
}

// setFlow gives a flow a rate of its own, and a burst that is no higher than that of all.
func (s *soak) setFlow(path string, r *rand.Rand, set func(operator.FlowPatch) error) error {
	var patch operator.FlowPatch
	rate := pick(r, 5, 15, 30)
	if err := errors.Join(patch.Put(shaper.FlowRate, fmt.Sprintf("%d/s", rate)), patch.Put(shaper.FlowBurst, pick(r, "1", "4"))); err != nil {
		return err
	}
	began := time.Now()
	err := set(patch)
	s.pacer(path).changed(began, time.Now(), float64(rate))
	return err
}

// pausing is a pause: nothing is claimed from its begin to its end.
type pausing struct {
	path     string
	from, to time.Time
}

// pauseSome pauses something for a while.
func (s *soak) pauseSome(r *rand.Rand) {
	ctx := context.WithoutCancel(s.t.Context())
	path, pause, resume := "", func() error { return nil }, func() error { return nil }
	switch bucket, flow, group := pick(r, plainBucket, flowsBucket, groupsBucket), someFlow(r), someGroup(r); r.IntN(3) {
	case 0:
		path = bucket
		pause = func() error { return s.control.Bucket(bucket).Pause(ctx, "") }
		resume = func() error { _, err := s.control.Bucket(bucket).Resume(ctx); return err }
	case 1:
		path = flowsBucket + "/" + flow
		pause = func() error { return s.control.Bucket(flowsBucket).Flow(flow).Pause(ctx, "") }
		resume = func() error { _, err := s.control.Bucket(flowsBucket).Flow(flow).Resume(ctx); return err }
	case 2:
		path = groupsBucket + "/" + group
		pause = func() error { return s.control.Bucket(groupsBucket).Group(group).Pause(ctx, "") }
		resume = func() error { _, err := s.control.Bucket(groupsBucket).Group(group).Resume(ctx); return err }
	}
	err := pause()
	from := time.Now()
	<-time.After(upTo(r, 600*time.Millisecond))
	to := time.Now()
	if err = errors.Join(err, resume()); err != nil {
		s.t.Errorf("pause %s: %v", path, err)
	}
	s.count("pause")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pauses = append(s.pauses, pausing{path, from, to})
}

// disturb does something to a process or to its connection.
func (s *soak) disturb(r *rand.Rand) {
	place := r.IntN(soakDispatchers)
	s.mu.Lock()
	p := s.processes[place]
	s.mu.Unlock()
	from := pick(r, s.producers...)
	switch n := r.IntN(100); {
	case n < 30:
		s.count("freeze dispatcher")
		length := upTo(r, soakLease*3/2)
		s.helpers.Go(func() { s.frozen(p, length) })
	case n < 45:
		s.count("cut dispatcher")
		s.fault(p, time.Now(), time.Now())
		p.proxy.CutAll()
	case n < 60:
		s.count("lose reply")
		s.fault(p, time.Now(), time.Now().Add(time.Minute)) // whenever that script is sent next
		p.proxy.DropReply(pick(r, lua.Claim, lua.Settle, lua.Reserve, lua.Extend).SHA() + "\r\n")
	case n < 75:
		s.count("kill dispatcher")
		s.fault(p, time.Now(), time.Now().Add(time.Hour))
		p.dead.Store(true)
		p.stop()
		p.proxy.Freeze() // for good: nothing of it reaches Redis any more
		p.proxy.CutAll()
		s.replace(place)
	case n < 85:
		s.count("restart dispatcher")
		p.stop()
		s.replace(place)
	case n < 93:
		s.count("freeze producer")
		length := upTo(r, time.Second)
		s.helpers.Go(func() {
			from.proxy.Freeze()
			<-time.After(length)
			from.proxy.Thaw()
		})
	default:
		s.count("cut producer")
		from.proxy.CutAll()
	}
}

// frozen freezes the connection of a dispatcher for so long.
func (s *soak) frozen(p *soakProcess, length time.Duration) {
	began := time.Now()
	p.proxy.Freeze()
	<-time.After(length)
	if !p.dead.Load() {
		p.proxy.Thaw()
	}
	s.fault(p, began, time.Now())
}

func (s *soak) fault(p *soakProcess, from, to time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, soakFault{p.number, from, to})
}

// replace starts another dispatcher in the place of one that is gone.
func (s *soak) replace(place int) {
	p := s.Start()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.processes[place] = p
}
