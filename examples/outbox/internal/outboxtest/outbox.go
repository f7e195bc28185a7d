package outboxtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/operations/outbox"
)

func testCommittedIsDelivered(t *testing.T, b *bench) {
	got := make(chan outbox.Entry, 10)
	r := b.relay(func(_ context.Context, e outbox.Entry) error { got <- e; return nil })
	r.Poll = time.Hour // so only the notification can wake it
	start(t, r)
	before := b.clock.now()
	b.put(t, outbox.Entry{ID: "one", Key: "k/ä", Payload: json.RawMessage(` {"a" : [1, "ä\u0000"]} `)})
	e := take(t, got)
	if e.EnqueuedAt.Before(before.Add(-time.Millisecond)) || e.EnqueuedAt.After(b.clock.now()) {
		t.Errorf("enqueued at %v, before %v", e.EnqueuedAt, before)
	}
	e.EnqueuedAt = time.Time{}
	want := outbox.Entry{ID: "one", Key: "k/ä", Payload: json.RawMessage(`{"a":[1,"ä\u0000"]}`), Attempt: 1}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Errorf("entry (-want +got):\n%s", diff)
	}
	until(t, "nothing is pending", func() bool { return b.stats(t).Pending == 0 })
}

func testPollFindsWhatNobodyToldOf(t *testing.T, b *bench) {
	got := make(chan outbox.Entry, 1)
	start(t, b.relay(func(_ context.Context, e outbox.Entry) error { got <- e; return nil }))
	tx := b.begin(t)
	if err := b.Enqueue(t.Context(), tx, entry("one", "k")); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	take(t, got)
}

func testRolledBackIsNotDelivered(t *testing.T, b *bench) {
	got := make(chan string, 10)
	start(t, b.relay(func(_ context.Context, e outbox.Entry) error { got <- e.ID; return nil }))
	tx := b.begin(t)
	if err := b.Enqueue(t.Context(), tx, entry("gone", "k")); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	b.put(t, entry("kept", "k")) // same key, so it would come after the first entry
	if id := take(t, got); id != "kept" {
		t.Errorf("delivered %q", id)
	}
}

func testEnqueueAgain(t *testing.T, b *bench) {
	b.put(t, entry("one", "k"))
	for _, tt := range []struct {
		reason string
		entry  outbox.Entry
		want   error
	}{
		{"the same is no error", entry("one", "k"), nil},
		{"spaces are no difference", outbox.Entry{ID: "one", Key: "k", Payload: json.RawMessage(` { "id": "one" } `)}, nil},
		{"another key", entry("one", "l"), outbox.ErrConflict},
		{"another payload", outbox.Entry{ID: "one", Key: "k", Payload: json.RawMessage(`1`)}, outbox.ErrConflict},
	} {
		tx := b.begin(t)
		if err := b.Enqueue(t.Context(), tx, tt.entry); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.reason, err, tt.want)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
	if n := b.stats(t).Pending; n != 1 {
		t.Errorf("%d pending, want 1", n)
	}
}

func testSchemaIsMadeByManyAtOnce(t *testing.T, b *bench) {
	other, err := outbox.Open(b.db, b.Dialect, outbox.Options{Table: b.table + "_too"})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := other.EnsureSchema(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// testOrderPerKey runs concurrent transactions and several relays with failing deliveries. Each entry is delivered.
// Entries of a key are delivered in commit order and never concurrently.
func testOrderPerKey(t *testing.T, b *bench) {
	const keys, perKey = 5, 20
	var mu sync.Mutex
	committed, delivered, inFlight := map[string][]string{}, map[string][]string{}, map[string]int{}
	total := 0
	all := make(chan struct{})
	deliver := func(_ context.Context, e outbox.Entry) error {
		mu.Lock()
		inFlight[e.Key]++
		if inFlight[e.Key] > 1 {
			t.Errorf("two deliveries of %s at once", e.Key)
		}
		mu.Unlock()
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			inFlight[e.Key]--
		}()
		if e.Attempt == 1 && strings.HasSuffix(e.ID, "3") {
			return errors.New("not yet")
		}
		mu.Lock()
		defer mu.Unlock()
		delivered[e.Key] = append(delivered[e.Key], e.ID)
		if total++; total == keys*perKey {
			close(all)
		}
		return nil
	}
	for range 3 {
		start(t, b.relay(deliver))
	}
	var writers sync.WaitGroup
	for k := range keys {
		key := fmt.Sprint("key", k)
		for w := range 2 { // two writers per key compete
			writers.Go(func() {
				for i := range perKey / 2 {
					id := fmt.Sprint(key, "-", w, "-", i)
					tx, err := b.db.BeginTx(t.Context(), nil)
					if err != nil {
						t.Error(err)
						return
					}
					if err := b.Enqueue(t.Context(), tx, entry(id, key)); err != nil {
						t.Error(err)
						return
					}
					mu.Lock() // the key is locked from Enqueue to the commit, so this is the commit order
					committed[key] = append(committed[key], id)
					mu.Unlock()
					if err := tx.Commit(); err != nil {
						t.Error(err)
						return
					}
					b.Notify()
				}
			})
		}
	}
	writers.Wait()
	take(t, all)
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff(committed, delivered); diff != "" {
		t.Errorf("committed (-) and delivered (+):\n%s", diff)
	}
}

func testFailureIsTriedAgainBeforeTheNextOfItsKey(t *testing.T, b *bench) {
	for _, tt := range []struct {
		reason string
		fail   func() error
	}{
		{"an error", func() error { return errors.New("no") }},
		{"a wait", func() error { return outbox.RetryAfter(time.Millisecond, errors.New("busy")) }},
		{"a panic", func() error { panic("oops") }},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, b.Database)
			got := make(chan string, 10)
			b.put(t, entry("one", "k"), entry("two", "k"))
			start(t, b.relay(func(_ context.Context, e outbox.Entry) error {
				got <- fmt.Sprint(e.ID, e.Attempt)
				if e.ID == "one" && e.Attempt < 3 {
					return tt.fail()
				}
				return nil
			}))
			var seen []string
			for range 4 {
				seen = append(seen, take(t, got))
			}
			if diff := cmp.Diff([]string{"one1", "one2", "one3", "two1"}, seen); diff != "" {
				t.Errorf("deliveries (-want +got):\n%s", diff)
			}
		})
	}
}

func testRetryAfterWaitsThatLong(t *testing.T, b *bench) {
	got := make(chan int, 10)
	start(t, b.relay(func(_ context.Context, e outbox.Entry) error {
		got <- e.Attempt
		if e.ID == "marker" || e.Attempt > 1 {
			return nil
		}
		return outbox.RetryAfter(time.Hour, errors.New("come back later"))
	}))
	b.put(t, entry("one", "k"))
	take(t, got)
	b.put(t, entry("marker", "l")) // other keys are still delivered
	if n := take(t, got); n != 1 {
		t.Fatalf("attempt %d before the hour has passed", n)
	}
	b.clock.pass(time.Hour)
	if n := take(t, got); n != 2 {
		t.Errorf("attempt %d, want 2", n)
	}
}

func testRejectedIsKept(t *testing.T, b *bench) {
	got := make(chan string, 10)
	var mu sync.Mutex
	reject := true
	start(t, b.relay(func(_ context.Context, e outbox.Entry) error {
		mu.Lock()
		defer mu.Unlock()
		got <- e.ID
		if e.ID == "bad" && reject {
			return outbox.Reject(errors.New("no such type\x00\xff"))
		}
		return nil
	}))
	b.put(t, entry("bad", "k"), entry("good", "k"))
	if diff := cmp.Diff([]string{"bad", "good"}, []string{take(t, got), take(t, got)}); diff != "" {
		t.Errorf("deliveries (-want +got):\n%s", diff)
	}
	until(t, "nothing is pending", func() bool { return b.stats(t).Pending == 0 })
	list, err := b.Rejected(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 || list[0].ID != "bad" || list[0].Reason != "no such type\uFFFD\uFFFD" || list[0].Attempt != 1 ||
		list[0].RejectedAt.Before(list[0].EnqueuedAt) || string(list[0].Payload) != `{"id":"bad"}` {
		t.Errorf("rejected: %+v", list)
	}
	if err := b.Requeue(t.Context(), "good"); !errors.Is(err, outbox.ErrNotFound) {
		t.Errorf("requeue of a delivered one: %v", err)
	}
	mu.Lock()
	reject = false
	mu.Unlock()
	if err := b.Requeue(t.Context(), "bad"); err != nil {
		t.Fatal(err)
	}
	if id := take(t, got); id != "bad" {
		t.Errorf("delivered %q", id)
	}
	until(t, "nothing is left", func() bool { s := b.stats(t); return s.Pending+s.Rejected == 0 })
}

// testLeaseRunsOut checks that a relay which hangs loses its lease, and that its late result is ignored.
func testLeaseRunsOut(t *testing.T, b *bench) {
	hung, release := make(chan outbox.Entry, 1), make(chan struct{})
	hanging := b.relay(func(_ context.Context, e outbox.Entry) error {
		hung <- e
		<-release
		return outbox.Reject(errors.New("too late to say so"))
	})
	hanging.Concurrency = 1 // leaves the other entries to the other relay
	stopFirst := start(t, hanging)
	t.Cleanup(sync.OnceFunc(func() { close(release) })) // before the cleanup that waits for the relay
	b.put(t, entry("one", "k"))
	first := take(t, hung)
	got := make(chan outbox.Entry, 10)
	second := b.relay(func(_ context.Context, e outbox.Entry) error { got <- e; return nil })
	start(t, second)
	b.put(t, entry("marker", "l"))
	if e := take(t, got); e.ID != "marker" {
		t.Fatalf("delivered %q while it was leased", e.ID)
	}
	b.clock.pass(30*time.Second + outbox.LeaseMargin + time.Second)
	if e := take(t, got); e.ID != first.ID || e.Attempt != first.Attempt+1 {
		t.Errorf("delivered %+v, after %+v", e, first)
	}
	until(t, "it is delivered", func() bool { return b.stats(t).Pending == 0 })
	release <- struct{}{}
	stopFirst()
	if s := b.stats(t); s.Rejected != 0 || s.Pending != 0 {
		t.Errorf("the late outcome counted: %+v", s)
	}
}

// testStopReleases checks that a stop is not a failure: the entry is released at once, without a delay or a counted
// attempt.
func testStopReleases(t *testing.T, b *bench) {
	began := make(chan struct{}, 1)
	stop := start(t, b.relay(func(ctx context.Context, _ outbox.Entry) error {
		began <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}))
	b.put(t, entry("one", "k"))
	take(t, began)
	stop()
	got := make(chan int, 1)
	start(t, b.relay(func(_ context.Context, e outbox.Entry) error { got <- e.Attempt; return nil }))
	if n := take(t, got); n != 1 {
		t.Errorf("attempt %d, want 1", n)
	}
}

// testStopKeepsWhatWasDone checks that an entry delivered before the stop is stored as delivered.
func testStopKeepsWhatWasDone(t *testing.T, b *bench) {
	began := make(chan struct{}, 1)
	stop := start(t, b.relay(func(ctx context.Context, _ outbox.Entry) error {
		began <- struct{}{}
		<-ctx.Done()
		return nil
	}))
	b.put(t, entry("one", "k"))
	take(t, began)
	stop()
	if n := b.stats(t).Pending; n != 0 {
		t.Errorf("%d pending, want none", n)
	}
}

func testTimeoutOfOneDelivery(t *testing.T, b *bench) {
	got := make(chan int, 10)
	r := b.relay(func(ctx context.Context, e outbox.Entry) error {
		if e.Attempt == 1 {
			<-ctx.Done()
		}
		got <- e.Attempt
		return ctx.Err()
	})
	r.Timeout = 10 * time.Millisecond
	start(t, r)
	b.put(t, entry("one", "k"))
	if a, z := take(t, got), take(t, got); a != 1 || z != 2 {
		t.Errorf("attempts %d and %d", a, z)
	}
}

func testConcurrencyIsBounded(t *testing.T, b *bench) {
	began, release := make(chan struct{}, 10), make(chan struct{})
	r := b.relay(func(context.Context, outbox.Entry) error {
		began <- struct{}{}
		<-release
		return nil
	})
	r.Concurrency = 2
	start(t, r)
	for i := range 5 {
		b.put(t, entry(fmt.Sprint(i), fmt.Sprint(i)))
	}
	take(t, began)
	take(t, began)
	for range 3 { // the third starts only when one has ended
		select {
		case <-began:
			t.Error("more than two at once")
		default:
		}
		release <- struct{}{}
		take(t, began)
	}
	close(release)
}

func testOldDeliveredEntriesAreDeleted(t *testing.T, b *bench) {
	rows := func() (n int) {
		if err := b.db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM `+b.table).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	start(t, b.relay(func(_ context.Context, e outbox.Entry) error {
		if e.ID == "bad" {
			return outbox.Reject(errors.New("bad"))
		}
		return nil
	}))
	b.put(t, entry("one", "k"), entry("bad", "l"))
	until(t, "nothing is pending", func() bool { return b.stats(t).Pending == 0 })
	b.clock.pass(23 * time.Hour)
	b.put(t, entry("two", "k")) // the cleanup has run before this is delivered
	until(t, "nothing is pending", func() bool { return b.stats(t).Pending == 0 })
	if n := rows(); n != 3 {
		t.Fatalf("%d rows after 23 hours, want 3", n)
	}
	b.clock.pass(2 * time.Hour)
	until(t, "the delivered one is deleted", func() bool { return rows() == 2 })
	if s := b.stats(t); s.Rejected != 1 {
		t.Errorf("%d rejected, want 1", s.Rejected)
	}
}

// testDatabaseFailure checks that a database error is logged once and loses no entry.
func testDatabaseFailure(t *testing.T, b *bench) {
	b.put(t, entry("one", "k"))
	if _, err := b.db.ExecContext(t.Context(), `ALTER TABLE `+b.table+` RENAME TO `+b.table+`_away`); err != nil {
		t.Fatal(err)
	}
	lines := make(lineWriter, 100)
	got := make(chan string, 1)
	r := b.relay(func(_ context.Context, e outbox.Entry) error { got <- e.ID; return nil })
	r.Log = slog.New(slog.NewTextHandler(lines, nil))
	start(t, r)
	if line := take(t, lines); !strings.Contains(line, "cannot use outbox") {
		t.Errorf("first line: %s", line)
	}
	if _, err := b.db.ExecContext(t.Context(), `ALTER TABLE `+b.table+`_away RENAME TO `+b.table); err != nil {
		t.Fatal(err)
	}
	take(t, got)
	for line := range drain(lines) {
		if strings.Contains(line, "cannot use outbox") {
			t.Errorf("logged twice: %s", line)
		}
	}
}
