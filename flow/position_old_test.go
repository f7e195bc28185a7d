package flow

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestPositionsOfOlderVersions reads positions without Back, Left and Err, which older versions did not save.
func TestPositionsOfOlderVersions(t *testing.T) {
	t.Parallel()
	step := func(name string, opts ...Option) Node[packet] {
		return Step(name, func(_ context.Context, f *fib) Next { f.Packet.note(name); return f.Next() }, opts...)
	}
	fl := New("f", step("a"), step("b", Deadline(5*time.Second)), step("c"),
		Detour("aside", func(_ context.Context, f *fib) Next { f.Packet.note("aside"); return f.Next() }))
	// A bubble begins at midnight of January 1, 2000.
	const rest = `"begun":"1999-12-31T23:59:00Z","started":"1999-12-31T23:59:30Z","token":"t"}`
	for _, c := range []struct {
		reason, saved, log string
		took               time.Duration
	}{
		{
			"a delay longer than the deadline of what follows",
			`{"flow":"f","step":"b","reason":"delay","wake":"2000-01-01T00:00:20Z",` + rest, "b c", 20 * time.Second,
		},
		{
			"a delay that was over before the step was entered, whose deadline counts from there",
			`{"flow":"f","step":"b","reason":"delay","wake":"1999-12-31T23:59:50Z",` +
				`"begun":"1999-12-31T23:59:00Z","started":"1999-12-31T23:59:58Z","token":"t"}`, "b c", 0,
		},
		{
			"a delay on a clock that starts at the zero time does not affect the deadline",
			`{"flow":"f","step":"b","reason":"delay","wake":"0001-01-01T00:00:20Z",` +
				`"begun":"0001-01-01T00:00:01Z","started":"0001-01-01T00:00:20Z","token":"t"}`, "b c", 0,
		},
		{
			"nor does a retry on such a clock",
			`{"flow":"f","step":"b","reason":"retry","attempt":2,"wake":"0001-01-01T00:00:20Z",` +
				`"begun":"0001-01-01T00:00:01Z","started":"0001-01-01T00:00:10Z","token":"t"}`, "b c", 0,
		},
		{
			"nor an await whose step and deadline are on such a clock",
			`{"flow":"f","step":"b","reason":"await","deadline":"0001-01-01T00:00:20Z",` +
				`"begun":"0001-01-01T00:00:01Z","started":"0001-01-01T00:00:10Z","token":"t"}`, "b c", 0,
		},
		{
			"a delay that ended before the restart",
			`{"flow":"f","step":"c","reason":"delay","wake":"1999-12-31T23:59:50Z",` + rest, "c", 0,
		},
		{
			"a delay to a detour with an unknown return address",
			`{"flow":"f","step":"aside","reason":"delay","wake":"2000-01-01T00:00:20Z",` + rest, "a b c", 0,
		},
		{"an await", `{"flow":"f","step":"c","reason":"await",` + rest, "c", 0},
		{
			"a retry", `{"flow":"f","step":"c","reason":"retry","attempt":2,"wake":"2000-01-01T00:00:07Z",` + rest, "c",
			7 * time.Second,
		},
	} {
		t.Run(c.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var saved Position
				if err := json.Unmarshal([]byte(c.saved), &saved); err != nil {
					t.Fatal(err)
				}
				var store Memory
				if err := store.Save(t.Context(), "k", saved); err != nil {
					t.Fatal(err)
				}
				e, p, began := NewEngine(EngineOptions{}), &packet{}, time.Now()
				defer e.Close(context.Background())
				err := start(t, e, fl, p, StartOptions{Key: "k", Positions: &store}).Wait(t.Context())
				if got := strings.Join(p.log, " "); err != nil || got != c.log || time.Since(began) != c.took {
					t.Errorf("ran %q after %v, %v; want %q after %v", got, time.Since(began), err, c.log, c.took)
				}
			})
		})
	}
}

func TestBadNumbersOfAFlow(t *testing.T) {
	t.Parallel()
	kids := func(context.Context, *fib) ([]Child, error) { return nil, nil }
	for reason, node := range map[string]Node[packet]{
		"negative limit": Fork("a", kids, Limit(-1)), "quorum of none": Fork("a", kids, Quorum(0)),
		"negative quorum":   Fork("a", kids, Quorum(-2)),
		"negative deadline": Step("a", stay, Deadline(-1)),
		"negative attempts": Step("a", stay, Retry(Backoff{Attempts: -1})),
		"negative base":     Step("a", stay, Retry(Backoff{Base: -1})),
		"negative cap":      Step("a", stay, Retry(Backoff{Max: -1})),
	} {
		if err := New("f", node).Err(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", reason, err)
		}
	}
	e := NewEngine(EngineOptions{})
	defer e.Close(context.Background())
	for reason, opt := range map[string]StartOptions{"negative timeout": {Timeout: -1}, "unknown mode": {Mode: 9}} {
		if _, err := New("f", note("a")).Start(t.Context(), e, &packet{}, opt); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", reason, err)
		}
	}
}
