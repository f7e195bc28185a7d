package lease

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// record is the lease as a server has it.
type record struct {
	resourcelock.Interface
	holder string
	absent bool
	slow   time.Duration // how long a write takes
}

func (r *record) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if r.absent {
		return nil, nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), "x")
	}
	return &resourcelock.LeaderElectionRecord{HolderIdentity: r.holder}, nil, nil
}

func (r *record) Update(_ context.Context, to resourcelock.LeaderElectionRecord) error {
	<-time.After(r.slow)
	r.holder, r.absent = to.HolderIdentity, false
	return nil
}

func (r *record) Create(ctx context.Context, to resourcelock.LeaderElectionRecord) error {
	return r.Update(ctx, to)
}
func (r *record) Identity() string { return "me" }
func (r *record) Describe() string { return "x" }

// TestTaken: who finds that another one has had the lease since, though it is free again, begins a new term, and the
// old one has ended.
func TestTaken(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		found  record
		age    time.Duration
		want   bool
	}{
		"Own":        {reason: "nobody has had it", found: record{holder: "me"}, age: time.Hour},
		"Another":    {reason: "another one leads", found: record{holder: "other"}, want: true},
		"Given back": {reason: "another one has led, and ended", found: record{holder: ""}, age: time.Minute, want: true},
		"Deleted": {
			reason: "somebody has deleted it just now: nobody can have led since", found: record{absent: true},
			age: time.Second,
		},
		"Deleted old": {
			reason: "the one that is deleted may have been another one's", found: record{absent: true},
			age: time.Minute, want: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // whose clock does not go on while the machine is busy
				terms, taken, term := 0, 0, true
				l := &lock{
					Interface: &tc.found, renew: 10 * time.Second, keep: time.Hour, renewed: time.Now().Add(-tc.age),
					won: func() {
						if !term {
							terms, term = terms+1, true
						}
					},
					taken: func() { taken, term = taken+1, false }, leave: func() error { return errors.New("not to be given back") },
				}
				if _, _, err := l.Get(t.Context()); err != nil && !apierrors.IsNotFound(err) {
					t.Fatal(err)
				}
				if err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}); err != nil {
					t.Fatal(err)
				}
				if want := map[bool]int{true: 1}[tc.want]; taken != want || terms != want {
					t.Errorf("%s: it was found taken %d times, and %d terms began", tc.reason, taken, terms)
				}
			})
		})
	}
}

// TestGivenBackByItsHolderOnly: a process that was stopped for long reads the lease and gives it back, as its elector
// does. That must not free the lease of a successor.
func TestGivenBackByItsHolderOnly(t *testing.T) {
	t.Parallel()
	for holder, want := range map[string]string{"me": "", "other": "other"} {
		server := &record{holder: holder}
		l := &lock{
			Interface: server, renew: 10 * time.Second, keep: time.Hour, renewed: time.Now().Add(-time.Minute), asked: true,
			taken: func() {}, leave: func() error { return nil },
		}
		if _, _, err := l.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{})
		if server.holder != want || (err == nil) != (holder == "me") {
			t.Errorf("held by %s and given back: it is held by %q, %v", holder, server.holder, err)
		}
	}
}

// TestALateAnswerBeginsNoTerm: a process that was stopped while it renewed the lease learns of the renewal when another
// one may have it.
func TestALateAnswerBeginsNoTerm(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		took time.Duration
		want bool
	}{
		"InTime": {took: 12 * time.Second, want: true},
		"Late":   {took: 13 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				won := false
				l := &lock{
					Interface: &record{holder: "me", slow: tc.took}, renew: 10 * time.Second, keep: 12500 * time.Millisecond,
					won: func() { won = true }, taken: func() {},
				}
				if err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}); err != nil {
					t.Fatal(err)
				}
				if won != tc.want {
					t.Errorf("after %v a term has begun: %v", tc.took, won)
				}
				if age, held := l.age(); held && age < tc.took {
					t.Errorf("the renewal is said to be %v old", age)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				if _, held := l.age(); held {
					t.Error("it is held for too long")
				}
			})
		})
	}
}

// TestATermThatExpiresAsItBegins: a term that expires before its beginning was told ends after that.
// The clock is the real one: that of a bubble stands still while the end waits for a lock.
func TestATermThatExpiresAsItBegins(t *testing.T) {
	t.Parallel()
	taken := make(chan struct{})
	l := &lock{
		Interface: &record{holder: "me"}, renew: 10 * time.Millisecond, keep: 20 * time.Millisecond,
		won: func() {
			select {
			case <-taken:
				t.Error("the term has ended before it began, and goes on")
			case <-time.After(100 * time.Millisecond): // the process is stopped for so long
			}
		},
		taken: func() { close(taken) },
	}
	if err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}); err != nil {
		t.Fatal(err)
	}
	<-taken
}
