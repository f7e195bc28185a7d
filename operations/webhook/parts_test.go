package webhook

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestGates: states and counts cover the known endpoints, of all namespaces or of a given one. Forgotten endpoints are
// not counted.
func TestGates(t *testing.T) {
	t.Parallel()
	var known gates
	get := func(endpoint string) *gate { return known.add(endpoint, newGate(BreakerStatus{State: Closed})) }
	for _, endpoint := range []string{"a/two", "ab/one", "a/one"} {
		if first := get(endpoint); get(endpoint) != first || known.find(endpoint) != first {
			t.Errorf("%s has two gates", endpoint)
		}
	}
	d := &Definition{Namespace: "a", Name: "one", Breaker: Breaker{Failures: 1, OpenFor: time.Hour}}
	leave, wait, _ := get(d.endpoint()).acquire(d, "id", nil)
	if wait.For != 0 {
		t.Fatalf("no permit: %+v", wait)
	}
	get(d.endpoint()).release(leave, outcomeBad)
	names := func(states []TargetState) (all []string) {
		for _, s := range states {
			all = append(all, s.Namespace+"/"+s.Webhook+" "+string(s.Circuit))
		}
		return all
	}
	for namespace, want := range map[string][]string{
		"":  {"a/one Open", "a/two Closed", "ab/one Closed"},
		"a": {"a/one Open", "a/two Closed"},
		"b": nil,
	} {
		if diff := cmp.Diff(want, names(known.states(namespace))); diff != "" {
			t.Errorf("states of %q (-want +got):\n%s", namespace, diff)
		}
	}
	if diff := cmp.Diff(map[BreakerState]int{Closed: 2, Open: 1, HalfOpen: 0}, known.breakers()); diff != "" {
		t.Errorf("breakers (-want +got):\n%s", diff)
	}
	known.forget("a/one")
	if known.find("a/one") != nil || known.breakers()[Open] != 0 {
		t.Error("a forgotten endpoint is still known")
	}
	known.vacate(func(namespace string) bool { return namespace == "a" })
	if known.find("a/two") != nil || known.find("ab/one") == nil {
		t.Error("The endpoints of one namespace are not dropped.")
	}
}

// TestCallbacks: a panic of one function is logged and stops no other one. The function for breakers is called once for
// each change of state.
func TestCallbacks(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	var statuses []BreakerState
	c := callbacks{
		logger: slog.New(slog.NewTextHandler(&logged, nil)),
		onBreaker: func(namespace, name string, status BreakerStatus) {
			if namespace != "ns" || name != "hook" {
				t.Errorf("called for %s/%s", namespace, name)
			}
			statuses = append(statuses, status.State)
		},
	}
	ran := 0
	c.run(func() { ran++ }, func() { panic("boom") }, func() { ran++ })
	if ran != 2 || !strings.Contains(logged.String(), "boom") {
		t.Errorf("%d functions ran, want 2; log: %s", ran, logged.String())
	}
	d := &Definition{Namespace: "ns", Name: "hook", Breaker: Breaker{Failures: 2, OpenFor: time.Hour}}
	g := newGate(BreakerStatus{State: Closed})
	for range 2 {
		before := g.breakerStatus()
		leave, _, _ := g.acquire(d, "id", nil)
		c.breakerUsed(d, g, before)
		before = g.breakerStatus()
		g.release(leave, outcomeBad)
		c.breakerUsed(d, g, before)
	}
	if diff := cmp.Diff([]BreakerState{Open}, statuses); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// TestLifetime: close waits for the tries in progress, and no try starts after close was called.
func TestLifetime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l lifetime
		if !l.begin() {
			t.Fatal("no try begins")
		}
		closed := false
		go func() { l.close(); closed = true }()
		synctest.Wait()
		if closed || l.begin() {
			t.Errorf("closed: %v, while a try is in progress; or another one begins", closed)
		}
		l.end()
		synctest.Wait()
		if !closed {
			t.Error("it does not close after the last try")
		}
		l.close()
	})
}

// witnessFunc is a Witness that suspects one definition.
type witnessFunc func(d *Definition, p Phase, alone bool) (end func())

func (f witnessFunc) Begin(d *Definition, p Phase, alone bool) (end func()) { return f(d, p, alone) }

func (f witnessFunc) Suspects(d *Definition) bool { return d.Name == "suspect" }

// TestComputations: the Witness sees each computation while it runs, and a suspect runs alone.
func TestComputations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		running, seen := 0, []string{}
		c := computations{turns: newTurns(2), witness: witnessFunc(func(d *Definition, p Phase, alone bool) func() {
			if alone && running > 0 {
				t.Errorf("%s does not run alone", d.Name)
			}
			running++
			seen = append(seen, d.Name+" "+string(p))
			return func() { running-- }
		})}
		run := func(name string, p Phase) {
			err := c.run(t.Context(), &Definition{Namespace: "ns", Name: name}, p, func() { time.Sleep(time.Second) })
			if err != nil {
				t.Error(err)
			}
		}
		go run("good", Rendering)
		synctest.Wait()
		go run("suspect", Compiling)
		synctest.Wait()
		run("good", Judging)
		if diff := cmp.Diff([]string{"good rendering", "suspect compiling", "good judging"}, seen); diff != "" {
			t.Errorf("the Witness saw (-want +got):\n%s", diff)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if c.run(ctx, &Definition{}, Rendering, func() { t.Error("it runs although its context has ended") }) == nil {
			t.Error("no error for an ended context")
		}
	})
}

// TestPollTrust: a poll carries the headers of the definition only to the origin of the request and to the given
// origins.
func TestPollTrust(t *testing.T) {
	t.Parallel()
	tmpl, _, err := compileRequest(Request{
		Method: "POST", URL: "https://a.example/{{.TenantID}}", Headers: map[string]string{"X-Key": "secret"},
	}, false)
	if err != nil {
		t.Fatal(err)
	}
	call := Call{ID: "id", Data: Data{TenantID: "t"}}
	for url, trusted := range map[string]bool{
		"https://a.example/jobs/1":      true,
		"https://b.example/jobs/1":      true,
		"https://c.example/jobs/1":      false,
		"http://a.example/jobs/1":       false,
		"https://a.example:8443/jobs/1": false,
	} {
		r, got, err := tmpl.poll(call, url, []string{"https://b.example:443"})
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if got != trusted || (r.header.Get("X-Key") != "") != trusted {
			t.Errorf("%s: trusted is %v with headers %v, want %v", url, got, r.header, trusted)
		}
	}
}
