package flow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"pgregory.net/rapid"
)

func TestTrailKeepsTheLastAndCollapsesRepeats(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := &def{steps: make([]step, 300)}
		for i := range d.steps {
			d.steps[i].path = string(rune(0x4e00 + i))
		}
		var tr trail
		var want Trail
		for range rapid.IntRange(0, 60).Draw(t, "n") {
			pc := int32(rapid.SampledFrom([]int{0, 1, 127, 128, 299}).Draw(t, "pc"))
			out := rapid.SampledFrom([]op{opNext, opRetry}).Draw(t, "out")
			tr.add(pc, out, 1000)
			if n := len(want); n > 0 && want[n-1].Step == d.steps[pc].path && want[n-1].Outcome == out.String() {
				want[n-1].Repeats++
				continue
			}
			want = append(want, TrailEntry{
				Step: d.steps[pc].path, Outcome: out.String(), Took: unpackTime(packTime(1000)),
				Repeats: 1,
			})
		}
		got := tr.entries(d.path)
		if len(got)+int(tr.dropped) != len(want) {
			t.Fatalf("%d entries and %d dropped of %d", len(got), tr.dropped, len(want))
		}
		if diff := cmp.Diff(want[tr.dropped:], got); diff != "" && len(got) > 0 {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		if len(want) >= trailSize/5 && len(got) < trailSize/5 {
			t.Fatalf("only %d entries are kept", len(got))
		}
	})
}

func TestPackedTimeIsWithinAnEighth(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.Int64Range(0, int64(time.Hour)).Draw(t, "d")
		if got := int64(unpackTime(packTime(d))); got > d || d-got > max(d/8, 256) {
			t.Fatalf("%v became %v", time.Duration(d), time.Duration(got))
		}
	})
	if got := unpackTime(packTime(-5)); got != 0 {
		t.Errorf("a negative time became %v", got)
	}
	if got := unpackTime(packTime(1<<63 - 1)); got < time.Hour {
		t.Errorf("for ever became %v", got)
	}
}

func TestBackoffStaysBetweenBaseAndMax(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := Backoff{
			Base: time.Duration(rapid.Int64Range(1, 1<<40).Draw(t, "base")),
			Max:  time.Duration(rapid.Int64().Draw(t, "max")),
		}
		limit := b.Max
		if limit <= 0 {
			limit = 10 * time.Second
		}
		d := b.Delay(rapid.IntRange(-5, 1<<40).Draw(t, "attempt"))
		if d < b.Base || d > max(limit, b.Base) {
			t.Fatalf("%+v waits %v", b, d)
		}
	})
	if d := (Backoff{}).Delay(1); d != 400*time.Millisecond {
		t.Errorf("the default begins with %v", d)
	}
}

// parkedWorld starts a fiber in each kind of state.
func parkedWorld(t *testing.T, e *Engine) {
	start(t, e, New("delayed", note("a"), Step("b", func(ctx context.Context, f *fib) Next { return f.Delay(time.Hour) })),
		&packet{}, StartOptions{Key: "ns/delayed"})
	start(t, e,
		New("forked", children("kids", []fstep{func(ctx context.Context, f *fib) Next { return f.Suspend(f.Token()) }})),
		&packet{}, StartOptions{Key: "ns/forked"})
	start(t, e, New("busy", Step("a", func(ctx context.Context, f *fib) Next { <-ctx.Done(); return f.Next() })),
		&packet{}, StartOptions{Key: "other/busy"})
	synctest.Wait()
	time.Sleep(time.Minute)
}

func TestFibersAreShown(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		parkedWorld(t, e)
		var got []string
		for i := range e.Fibers() {
			got = append(got, strings.Join([]string{i.Path, i.Key, i.Status.String(), i.Why, i.Trail.String(), i.For.String()},
				"|"))
		}
		want := []string{
			"delayed/b|ns/delayed|parked|delay|a:next b:delay|1m0s",
			"forked/kids|ns/forked|parked|fork|kids:fork|1m0s",
			"busy/a|other/busy|running|||1m0s",
			"forked/kids[0]/work|ns/forked|parked|suspend|work:suspend|1m0s",
		}
		if diff := cmp.Diff(want, got, cmpopts.SortSlices(strings.Compare)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		for range e.Fibers() {
			break // leaves no cursor behind
		}
		start(t, e, New("young", Step("a", func(ctx context.Context, f *fib) Next { return f.Await() })), &packet{},
			StartOptions{})
		synctest.Wait()
		n := 0
		for i := range e.Stuck(30 * time.Second) {
			if n++; i.Flow == "young" {
				t.Error("a young fiber is stuck")
			}
		}
		if n != 4 {
			t.Errorf("%d are stuck", n)
		}
	})
}

// The race detector checks that Info and the resumption of a position take one lock.
func TestFibersAreShownWhileTheirPositionsAreTakenOver(t *testing.T) {
	t.Parallel()
	fl := New("saved", note("a"), note("b"))
	var saved Memory
	var keys []string
	for i, reason := range []reason{whyDelay, whyRetry} {
		for j := range 1000 {
			keys = append(keys, fmt.Sprintf("%d/%d", i, j))
			now := time.Now()
			pos := Position{
				Flow: "saved", Step: "b", Reason: reason.String(), Attempt: 2, Begun: now, Started: now,
				Wake: now.Add(time.Hour),
			}
			if err := saved.Save(t.Context(), keys[len(keys)-1], pos); err != nil {
				t.Fatal(err)
			}
		}
	}
	e := NewEngine(EngineOptions{})
	defer func() {
		if err := e.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	for _, key := range keys {
		h := start(t, e, fl, &packet{}, StartOptions{Key: key, Positions: &saved})
		for h.Info().Status != Parked {
			runtime.Gosched()
		}
	}
}

func TestFibersYieldsEachOnceWhileOthersComeAndGo(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		var handles []Handle
		for range 500 {
			handles = append(handles, start(t, e, sleeper(time.Hour), &packet{}, StartOptions{}))
		}
		synctest.Wait()
		seen := map[uint64]int{}
		for i := range e.Fibers() {
			seen[i.ID]++
			if len(seen)%50 == 0 { // ends some before and after the cursor, and starts others
				for _, h := range handles[len(seen)/5 : len(seen)/5+3] {
					h.Cancel(nil)
				}
				handles[499-len(seen)/5].Cancel(nil)
				synctest.Wait()
				if len(seen) < 400 {
					start(t, e, sleeper(time.Hour), &packet{}, StartOptions{})
				}
			}
		}
		for id, n := range seen {
			if n != 1 {
				t.Errorf("fiber %d was yielded %d times", id, n)
			}
		}
		for i := range handles {
			if seen[uint64(i+1)] == 0 && !handles[i].Status().Ended() {
				t.Errorf("fiber %d was missed", i+1)
			}
		}
	})
}

func TestDebugHandler(t *testing.T) {
	t.Parallel()
	cases := []struct {
		reason, query, accept string
		code, lines           int
		has                   string
	}{
		{"text, with a header", "", "", 200, 5, "delayed/b"},
		{"json", "?format=json", "", 200, 4, `"path":"forked/kids[0]/work"`},
		{"json by its type", "", "application/json", 200, 4, `"status":"parked"`},
		{"by key", "?key=ns/forked&format=json", "", 200, 2, "forked"},
		{"by status", "?status=running&format=json", "", 200, 1, "busy"},
		{"by flow", "?flow=delayed&format=json", "", 200, 1, "delayed"},
		{"by time", "?longer=2m", "", 200, 1, "no fibers"},
		{"limited", "?limit=1&format=json", "", 200, 1, ""},
		{"a wrong time", "?longer=x", "", 400, 1, "cannot read longer"},
		{"a wrong limit", "?limit=-1", "", 400, 1, "cannot read limit"},
	}
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		parkedWorld(t, e)
		for _, c := range cases {
			r := httptest.NewRequest("GET", "/debug/flows"+c.query, nil)
			if c.accept != "" {
				r.Header.Set("Accept", c.accept)
			}
			w := httptest.NewRecorder()
			e.DebugHandler().ServeHTTP(w, r)
			body := w.Body.String()
			if w.Code != c.code || strings.Count(body, "\n") != c.lines || !strings.Contains(body, c.has) {
				t.Errorf("%s: %d\n%s", c.reason, w.Code, body)
			}
			if strings.Contains(w.Header().Get("Content-Type"), "json") {
				for line := range strings.Lines(body) {
					if !json.Valid([]byte(line)) {
						t.Errorf("%s: no JSON: %s", c.reason, line)
					}
				}
			}
		}
	})
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		reg := prometheus.NewPedanticRegistry()
		reg.MustRegister(e.Collector())
		parkedWorld(t, e)
		start(t, e, New("failing", Step("a", func(ctx context.Context, f *fib) Next { return f.Fail(errBad) })), &packet{},
			StartOptions{})
		start(t, e, sleeper(time.Hour), &packet{}, StartOptions{Key: "ns/delayed"})
		synctest.Wait()
		want := `
# HELP fairlead_flow_fibers Live fibers by status.
# TYPE fairlead_flow_fibers gauge
fairlead_flow_fibers{status="parked"} 3
fairlead_flow_fibers{status="ready"} 0
fairlead_flow_fibers{status="running"} 1
# HELP fairlead_flow_preempted_total Fibers cancelled in favour of a newer one of their key.
# TYPE fairlead_flow_preempted_total counter
fairlead_flow_preempted_total 1
`
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "fairlead_flow_fibers",
			"fairlead_flow_preempted_total"); err != nil {
			t.Error(err)
		}
		var text bytes.Buffer
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			text.WriteString(f.String())
		}
		for _, part := range []string{
			"fairlead_flow_steps_total", "fairlead_flow_step_duration_seconds",
			"fairlead_flow_fibers_ended_total", `"fail"`,
		} {
			if !strings.Contains(text.String(), part) {
				t.Errorf("%s is missing", part)
			}
		}
	})
}

func TestRebuiltFlowsDoNotAccumulate(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		for range 3 * keepBound {
			start(t, e, New("again", note("a")), &packet{}, StartOptions{}).Wait(t.Context())
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		r := &e.fibers.flows
		if len(r.bound) > keepBound+1 || len(r.flows) != 1 || r.flows["again"].begun.Load() != 3*keepBound {
			t.Errorf("%d flows, %d names", len(r.bound), len(r.flows))
		}
	})
}

func TestASpanPerStep(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	tracer := provider.Tracer("test")
	bubble(t, EngineOptions{Tracer: tracer}, func(t *testing.T, e *Engine) {
		ctx, request := tracer.Start(t.Context(), "request")
		fl := New("f", note("a"), children("kids", []fstep{stay}),
			Step("b", func(ctx context.Context, f *fib) Next { return f.Fail(errBad) }))
		h, err := fl.Start(ctx, e, &packet{}, StartOptions{Key: "k"})
		if err != nil {
			t.Fatal(err)
		}
		request.End()
		h.Wait(t.Context())
	})
	parents, names := map[string]string{}, map[string]string{}
	for _, s := range spans.Ended() {
		names[s.SpanContext().SpanID().String()] = s.Name()
		if s.Name() == "b" && (s.Status().Code != codes.Error || s.Status().Description != "bad") {
			t.Errorf("status of b: %+v", s.Status())
		}
	}
	for _, s := range spans.Ended() {
		parents[s.Name()] = names[s.Parent().SpanID().String()]
	}
	want := map[string]string{
		"request": "", "f": "request", "a": "f", "kids": "f", "child": "f", "work": "child",
		"b": "f",
	}
	if diff := cmp.Diff(want, parents); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLabels(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{Labels: true}, func(t *testing.T, e *Engine) {
		got := map[string]string{}
		err := start(t, e, New("f", Group("g", Step("a", func(ctx context.Context, f *fib) Next {
			pprof.ForLabels(ctx, func(k, v string) bool { got[k] = v; return true })
			return f.Next()
		}))), &packet{}, StartOptions{Key: "ns/k"}).Wait(t.Context())
		if diff := cmp.Diff(map[string]string{"flow": "f", "step": "g/a", "key": "ns/k"}, got); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	})
}

func FuzzPosition(f *testing.F) {
	f.Add(
		[]byte(
			`{"flow":"f","step":"b","reason":"retry","attempt":1,"begun":"2000-01-01T00:00:00Z","started":"2000-01-01T00:00:00Z","wake":"2000-01-01T00:01:00Z","token":"t"}`,
		),
	)
	f.Add(
		[]byte(`{"flow":"f","step":"d","reason":"await","attempt":-7,"deadline":"9999-01-01T00:00:00Z","checkpoint":[1]}`),
	)
	f.Add(
		[]byte(`{"flow":"f","step":"b","started":"9999-01-01T00:00:00Z","wake":"2200-01-01T00:00:00Z","reason":"retry"}`),
	)
	fl := New("f", note("a"), Step("b", stay, Deadline(time.Minute)), Detour("d", stay), note("c"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var p Position
		if json.Unmarshal(data, &p) != nil {
			return
		}
		bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
			var store Memory
			store.Save(t.Context(), "k", p)
			h := start(t, e, fl, &packet{}, StartOptions{Key: "k", Positions: &store})
			synctest.Wait()
			if h.Status() == Parked { // until a wake time that was saved
				if !p.Wake.After(time.Now()) {
					t.Errorf("parked without a reason: %+v", h.Info())
				}
				h.Cancel(nil)
			}
			if err := h.Wait(t.Context()); err != nil && !errors.Is(err, ErrCancelled) && !errors.Is(err, ErrTimeout) &&
				!errors.Is(err, errUnknownStep) {
				t.Error(err)
			}
		})
	})
}
