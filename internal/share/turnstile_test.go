package share

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

// queueOf plays visitors: "a1" is caller 1 of group a, and "-" one who shares with nobody.
type queueOf struct {
	t    *Turnstile
	came []string // who was let in, in that order
	out  []func()
}

func visitorOf(name string) Visitor {
	if name == "-" {
		return Visitor{}
	}
	return Visitor{name[:1], name}
}

// now has one come who does not wait.
func (q *queueOf) now(name string) (scope string) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	leave, err := q.t.Enter(ctx, visitorOf(name))
	var busy *BusyError
	switch {
	case errors.As(err, &busy):
		return busy.Scope
	case err != nil:
		return err.Error()
	}
	q.came, q.out = append(q.came, name), append(q.out, leave)
	return ""
}

func TestShares(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		places int
		crowds []string
		want   []string // each with how many it gets and whose places are taken then
	}{
		"Alone": {
			"A caller alone has a third, and a group half.", 12,
			[]string{"a1", "a2", "a3", "a4"},
			[]string{"a1 4 caller", "a2 2 group", "a3 0 group", "a4 0 group"},
		},
		"Groups": {
			"Each group leaves as many as it takes.", 64,
			[]string{"a1", "a2", "b1", "b2", "c1", "d1", "e1"},
			[]string{"a1 22 caller", "a2 10 group", "b1 11 caller", "b2 5 group", "c1 6 caller", "d1 4 caller", "e1 2 caller"},
		},
		"One":       {"A single place goes to anybody.", 1, []string{"a1", "b1"}, []string{"a1 1 all", "b1 0 all"}},
		"Unknown":   {"Who is nobody in particular shares with nobody.", 5, []string{"-"}, []string{"- 5 all"}},
		"Everybody": {"When there is none left, that is told.", 4, []string{"-", "a1"}, []string{"- 4 all", "a1 0 all"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := &queueOf{t: &Turnstile{Places: tc.places}}
			var got []string
			for _, crowd := range tc.crowds {
				n, scope := 0, q.now(crowd)
				for ; scope == ""; scope = q.now(crowd) {
					n++
				}
				got = append(got, fmt.Sprint(crowd, " ", n, " ", scope))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			for _, leave := range q.out {
				leave()
				leave() // once is what counts
			}
			if q.t.Inside() != 0 || len(q.t.groups)+len(q.t.callers) != 0 {
				t.Errorf("%d are left inside, %v %v", q.t.Inside(), q.t.groups, q.t.callers)
			}
		})
	}
}

// TestTurns has many wait of one group, and one of another come later.
func TestTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := &Turnstile{Places: 2, Rate: rate.NewLimiter(10, 1), Queue: 20, Patience: time.Minute}
		order := make(chan string, 100)
		come := func(name string) {
			go func() {
				leave, err := turns.Enter(t.Context(), visitorOf(name))
				if err != nil {
					order <- name + ": " + err.Error()
					return
				}
				order <- name
				time.Sleep(50 * time.Millisecond)
				leave()
			}()
			synctest.Wait()
		}
		began := time.Now()
		for range 10 {
			come("a1")
		}
		come("a2")
		come("b1")
		come("b1")
		var got []string
		for range 13 {
			got = append(got, <-order)
		}
		if diff := cmp.Diff(strings.Fields("a1 b1 a2 b1 a1 a1 a1 a1 a1 a1 a1 a1 a1"), got); diff != "" {
			t.Errorf("the order (-want +got):\n%s", diff)
		}
		if took := time.Since(began); took < 1100*time.Millisecond || took > 1300*time.Millisecond {
			t.Errorf("thirteen at ten a second take %v", took)
		}
		time.Sleep(time.Second) // until the last ones have left
	})
}

// TestWaiting bounds who waits, and for how long.
func TestWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		door := &Turnstile{Places: 1, Queue: 2, Patience: time.Second}
		hold, err := door.Enter(t.Context(), visitorOf("-"))
		if err != nil {
			t.Fatal(err)
		}
		results := make(chan string, maxWaiting+10)
		come := func(ctx context.Context, name string) {
			go func() {
				leave, err := door.Enter(ctx, visitorOf(name))
				if err == nil {
					leave()
				}
				results <- fmt.Sprint(name, " ", err)
			}()
			synctest.Wait()
		}
		gone, leave := context.WithCancel(t.Context())
		come(gone, "a1")
		come(t.Context(), "a1")
		come(t.Context(), "a2") // there are two of its group already
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
		for i := range maxWaiting / 2 { // many groups have their two
			for range 2 {
				go func() {
					leave, err := door.Enter(t.Context(), Visitor{Group: fmt.Sprint("g", i)})
					if err == nil {
						leave()
					}
					results <- fmt.Sprint("g ", err)
				}()
			}
		}
		synctest.Wait()
		come(t.Context(), "z1")
		if got := <-results; got != "g too many at a time (all)" {
			t.Errorf("for the newcomer went: %s", got)
		}
		hold()
		synctest.Wait()
		fine := 0
		for range maxWaiting {
			if strings.HasSuffix(<-results, " <nil>") {
				fine++
			}
		}
		if fine != maxWaiting || door.Inside() != 0 || len(door.groups) != 0 {
			t.Errorf("%d came in, %d are inside, %d groups", fine, door.Inside(), len(door.groups))
		}
	})
}

func TestMemoryIsShared(t *testing.T) {
	t.Parallel()
	m := NewCache[string, int](4)
	m.Put("mine", "me", 1)
	for i := range 100 {
		m.Put(fmt.Sprint(i), "them", i)
	}
	if _, ok := m.Get("mine"); !ok {
		t.Error("others have pushed it out")
	}
	for _, key := range []string{"97", "98", "99"} {
		if _, ok := m.Get(key); !ok {
			t.Errorf("the latest ones have %s no more", key)
		}
	}
	m.Put("99", "me", 7)
	if v, _ := m.Get("99"); v != 7 || len(m.entries) != 4 {
		t.Errorf("%d, %d entries", v, len(m.entries))
	}
	for key := range m.entries {
		m.Drop(key)
		m.Drop(key)
	}
	if len(m.groups) != 0 {
		t.Errorf("%d groups are left", len(m.groups))
	}
}

// TestFlights has several want to know the same.
func TestFlights(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var f Flights[string, int]
		gone, leave := context.WithCancel(t.Context())
		asked := 0
		find := func(ctx context.Context) func() (int, error) {
			return func() (int, error) {
				asked++
				select {
				case <-time.After(time.Minute):
					return asked, nil
				case <-ctx.Done():
					return 0, ctx.Err()
				}
			}
		}
		go func() { _, _ = f.Do(gone, "k", find(gone)) }() // it goes away
		synctest.Wait()
		results := make(chan int, 3)
		for range 3 {
			go func() {
				v, err := f.Do(t.Context(), "k", find(t.Context()))
				if err != nil {
					t.Error(err)
				}
				results <- v
			}()
		}
		synctest.Wait()
		leave()
		for range 3 {
			if v := <-results; v != 2 {
				t.Errorf("asked %d times", v)
			}
		}
	})
}
