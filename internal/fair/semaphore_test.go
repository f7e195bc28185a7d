package fair

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/time/rate"
)

// visits makes callers enter: "a1" is caller 1 of group a, and "-" has no group.
type visits struct {
	s    *Semaphore
	came []string // the admitted callers, in order
	out  []func()
}

func partyOf(name string) Party {
	if name == "-" {
		return Party{}
	}
	return Party{name[:1], name}
}

// now makes a caller try to enter without waiting. It returns the scope that was full.
func (q *visits) now(name string) (scope string) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	release, err := q.s.Acquire(ctx, partyOf(name))
	var busy *BusyError
	switch {
	case errors.As(err, &busy):
		return busy.Scope
	case err != nil:
		return err.Error()
	}
	q.came, q.out = append(q.came, name), append(q.out, release)
	return ""
}

func TestSemaphoreIsShared(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		places int
		crowds []string
		want   []string // each with its number of slots and the scope that is full then
	}{
		"Alone": {
			"A caller alone has a third, and a group half.", 12,
			[]string{"a1", "a2", "a3", "a4"},
			[]string{"a1 4 member", "a2 2 group", "a3 0 group", "a4 0 group"},
		},
		"Groups": {
			"Each group leaves as many slots as it takes.", 64,
			[]string{"a1", "a2", "b1", "b2", "c1", "d1", "e1"},
			[]string{"a1 22 member", "a2 10 group", "b1 11 member", "b2 5 group", "c1 6 member", "d1 4 member", "e1 2 member"},
		},
		"One":       {"A single slot goes to any caller.", 1, []string{"a1", "b1"}, []string{"a1 1 all", "b1 0 all"}},
		"Unknown":   {"A caller without a group does not share.", 5, []string{"-"}, []string{"- 5 all"}},
		"Everybody": {"Without a free slot the scope is all.", 4, []string{"-", "a1"}, []string{"- 4 all", "a1 0 all"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := &visits{s: &Semaphore{Slots: tc.places}}
			var got []string
			for _, caller := range tc.crowds {
				n, scope := 0, q.now(caller)
				for ; scope == ""; scope = q.now(caller) {
					n++
				}
				got = append(got, fmt.Sprint(caller, " ", n, " ", scope))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			for _, leave := range q.out {
				leave()
				leave() // only the first call counts
			}
			if q.s.InUse() != 0 || len(q.s.groups)+len(q.s.members) != 0 {
				t.Errorf("%d slots are in use, %v %v", q.s.InUse(), q.s.groups, q.s.members)
			}
		})
	}
}

// TestSemaphoreTakesTurns: a later caller of another group passes the many waiting callers of one group.
func TestSemaphoreTakesTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := &Semaphore{Slots: 2, Rate: rate.NewLimiter(10, 1), Waiting: 20, Wait: time.Minute}
		order := make(chan string, 100)
		arrive := func(name string) {
			go func() {
				release, err := turns.Acquire(t.Context(), partyOf(name))
				if err != nil {
					order <- name + ": " + err.Error()
					return
				}
				order <- name
				time.Sleep(50 * time.Millisecond)
				release()
			}()
			synctest.Wait()
		}
		began := time.Now()
		for range 10 {
			arrive("a1")
		}
		arrive("a2")
		arrive("b1")
		arrive("b1")
		var got []string
		for range 13 {
			got = append(got, <-order)
		}
		if diff := cmp.Diff(strings.Fields("a1 b1 a2 b1 a1 a1 a1 a1 a1 a1 a1 a1 a1"), got); diff != "" {
			t.Errorf("the order (-want +got):\n%s", diff)
		}
		if took := time.Since(began); took < 1100*time.Millisecond || took > 1300*time.Millisecond {
			t.Errorf("thirteen callers at ten a second took %v", took)
		}
		time.Sleep(time.Second) // until the last callers have left
	})
}

// TestSemaphoreWaiting: the number of waiting callers and the time that they wait are bounded.
func TestSemaphoreWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		door := &Semaphore{Slots: 1, Waiting: 2, Wait: time.Second}
		hold, err := door.Acquire(t.Context(), partyOf("-"))
		if err != nil {
			t.Fatal(err)
		}
		results := make(chan string, maxWaiting+10)
		arrive := func(ctx context.Context, name string) {
			go func() {
				leave, err := door.Acquire(ctx, partyOf(name))
				if err == nil {
					leave()
				}
				results <- fmt.Sprint(name, " ", err)
			}()
			synctest.Wait()
		}
		gone, leave := context.WithCancel(t.Context())
		arrive(gone, "a1")
		arrive(t.Context(), "a1")
		arrive(t.Context(), "a2") // two callers of its group wait already
		if got := <-results; got != "a2 too many at a time (all)" {
			t.Error(got)
		}
		leave()
		if got := <-results; got != "a1 context canceled" {
			t.Error(got)
		}
		began := time.Now()
		if got := <-results; got != "a1 too many at a time (all)" || time.Since(began) != time.Second {
			t.Errorf("%s after %v", got, time.Since(began))
		}
		for i := range maxWaiting / 2 { // many groups have their two waiting callers
			for range 2 {
				go func() {
					leave, err := door.Acquire(t.Context(), Party{Group: fmt.Sprint("g", i)})
					if err == nil {
						leave()
					}
					results <- fmt.Sprint("g ", err)
				}()
			}
		}
		synctest.Wait()
		arrive(t.Context(), "z1")
		if got := <-results; got != "g too many at a time (all)" {
			t.Errorf("rejected for the new caller: %s", got)
		}
		hold()
		synctest.Wait()
		fine := 0
		for range maxWaiting {
			if strings.HasSuffix(<-results, " <nil>") {
				fine++
			}
		}
		if fine != maxWaiting || door.InUse() != 0 || len(door.groups) != 0 {
			t.Errorf("%d were admitted, %d slots are in use, %d groups", fine, door.InUse(), len(door.groups))
		}
	})
}
