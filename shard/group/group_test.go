package group

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/leasing"
	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/why"
)

func bubble(t *testing.T, fn func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.reason = t.Name()
		defer w.close()
		fn(t, w)
	})
}

func random() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// three starts three members and waits until they share the slots.
func (w *world) three(o Options) (one, two, three *process) {
	w.t.Helper()
	one, two, three = w.start("one", random(), o), w.start("two", random(), o), w.start("three", random(), o)
	w.play(3 * time.Second)
	w.within(0, one.g.Layout().Len(), "the start")
	return one, two, three
}

func TestShare(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one, two, three := w.three(Options{})
		for _, p := range []*process{one, two, three} {
			if n := p.g.Held().Len(); n < 2 || n > 3 {
				t.Errorf("%s holds %d slots", p.name, n)
			}
		}
		two.stop()
		w.within(time.Second, 8, "a leave")
		<-two.ended
		if two.err != nil || !two.g.Held().IsEmpty() || !errors.Is(two.g.Fence(0), ErrNotHeld) {
			t.Errorf("it has left with %v, and holds %s", two.err, two.g.Held())
		}
		if err := two.g.Run(t.Context()); err == nil {
			t.Error("it runs twice")
		}
		three.set(func() { three.faults.killed = true })
		three.stop()
		w.within(20*time.Second, 8, "a crash")
		if !one.g.Held().IsAll() {
			t.Errorf("the last one holds %s", one.g.Held())
		}
	})
}

// TestPaused: a member that was paused for longer than its lease lasts is let through nowhere when it goes on, before
// anything of it has noticed, and its slots are lost, not moved.
func TestPaused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.three(Options{})
		s := &script{linger: -1}
		one := w.start("four", random(), Options{}, s)
		w.play(3 * time.Second)
		held := one.g.Held()
		var slot int
		for slot = range held.Slots() {
			break
		}
		one.pause()
		w.within(20*time.Second, 8, "a pause")
		one.resume()
		if err := one.g.Fence(slot); !errors.Is(err, ErrLost) || !one.g.Held().IsEmpty() {
			t.Errorf("it may send for slot %d: %v", slot, err)
		}
		w.play(5 * time.Second)
		if err := s.cause(); !errors.Is(err, ErrLost) {
			t.Errorf("the context ended with %v", err)
		}
		if one.g.Held().IsEmpty() {
			t.Error("it has not joined again")
		}
	})
}

// TestPausedInFlight: the answer to a renewal that comes when the process goes on is of long ago.
func TestPausedInFlight(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one, _, _ := w.three(Options{})
		one.set(func() { one.faults.trap = true })
		w.play(2 * time.Second)
		w.within(20*time.Second, 8, "a pause")
		one.set(func() { one.faults = faults{blind: true} }) // else it would see at once what has happened
		one.resume()
		w.play(5 * time.Second)
		one.set(func() { one.faults.blind = false })
		w.play(5 * time.Second)
		if one.g.Held().IsEmpty() {
			t.Error("it has not joined again")
		}
	})
}

// TestForbidden: without rights nobody works, one line says why, and with them all goes on.
func TestForbidden(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for _, verb := range []string{"get", "create", "update", "patch", "list", ""} {
			rule := w.server.On(apiserver.Match{Resource: "leases", Verb: verb},
				apiserver.Answer(apiserver.Failure(http.StatusForbidden)))
			p := w.start("one", random(), Options{})
			w.play(time.Minute)
			if err := p.g.Status().Err; !errors.Is(err, ErrForbidden) || !p.g.Held().IsEmpty() {
				t.Errorf("%q: it holds %q with %v", verb, p.g.Held(), err)
			}
			const needs = `no permission for Leases in namespace a, which need the rule {apiGroups: ["coordination.k8s.io"], ` +
				`resources: ["leases"], verbs: ["get", "list", "watch", "create", "update", "patch", "delete"]}`
			if err := p.g.Status().Err; err == nil || !strings.Contains(err.Error(), needs) {
				t.Errorf("%q: the rule is not told: %v", verb, err)
			}
			logged := w.logged()
			if strings.Count(logged, "no permission for Leases") != 1 || strings.Count(logged, "level=WARN msg=lost") != 0 {
				t.Errorf("%q: it is not told once: %s", verb, logged)
			}
			told := p.g.Why("n", "")
			if len(told) != 1 || told[0].Type != why.Forbidden || told[0].Evidence["namespace"] != "a" ||
				!strings.Contains(told[0].Advice, told[0].Evidence["rule"]) {
				t.Errorf("%q: why says %+v", verb, told)
			}
			rule.Off()
			w.within(20*time.Second, 8, "rights")
			w.play(10 * time.Second) // a term that expires just now is followed by another
			if err := p.g.Status().Err; err != nil {
				t.Errorf("%s: the status stays %v", verb, err)
			}
			p.stop()
			<-p.ended
			w.forgetLog()
		}
	})
}

// TestLayout: members of another layout wait until the last one of this one has left, dead or alive.
func TestLayout(t *testing.T) {
	for _, tc := range []struct {
		reason string
		other  Options
		crash  bool
	}{
		{"other slots", Options{Layout: shard.Layout{Slots: 16}}, false},
		{"other slots, and the last one crashes", Options{Layout: shard.Layout{Slots: 16}}, true},
		{"another field", Options{Layout: shard.Layout{Slots: 8, By: shard.UID}}, false},
		{"another leader", Options{Layout: shard.Layout{Slots: 8}, Leader: "leader"}, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				one, two, three := w.three(Options{})
				p := w.start("other", random(), tc.other)
				n := tc.other.Layout.Slots
				w.play(5 * time.Second)
				if err := p.g.Status().Err; !errors.Is(err, ErrLayout) || !p.g.Held().IsEmpty() {
					t.Errorf("it holds %s with %v", p.g.Held(), err)
				}
				one.stop()
				two.stop()
				w.play(2 * time.Second)
				if !p.g.Held().IsEmpty() {
					t.Errorf("beside one of the others it holds %s", p.g.Held())
				}
				if tc.crash {
					three.set(func() { three.faults.killed = true })
				}
				three.stop()
				if !tc.crash {
					<-three.ended
				}
				w.within(20*time.Second, n, "the last one has gone")
				w.play(2 * time.Second)
				if err := p.g.Status().Err; err != nil {
					t.Errorf("the status stays %v", err)
				}
			})
		})
	}
}

// TestRejoin: who has lost its Lease knows that it has stopped, and waits for nobody when it comes back.
func TestRejoin(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one := w.start("one", random(), Options{})
		w.play(3 * time.Second)
		one.set(func() { one.faults.cut = true })
		w.play(9 * time.Second)
		if !one.g.Held().IsEmpty() || one.g.Status().Err == nil {
			t.Errorf("cut off, it holds %s, with %v", one.g.Held(), one.g.Status().Err)
		}
		one.set(func() { one.faults.cut = false })
		w.within(6*time.Second, 8, "it came back")
	})
}

// TestRollout: members are replaced one by one.
func TestRollout(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one, two, three := w.three(Options{})
		for i, old := range []*process{one, two, three} {
			w.start(fmt.Sprint("new", i), random(), Options{})
			w.within(2*time.Second, 8, "a join")
			w.play(2 * time.Second)
			old.stop()
			w.within(time.Second, 8, "a leave")
			w.play(2 * time.Second)
			w.within(0, 8, "a while")
		}
	})
}

// TestDeadWatch: a member whose watch tells nothing any more asks what there is.
func TestDeadWatch(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		_, _, three := w.three(Options{})
		w.server.HoldEvents(apiserver.Match{})
		w.server.On(apiserver.Match{Verb: "watch"}, apiserver.Answer(apiserver.Failure(http.StatusTooManyRequests)))
		w.play(5 * time.Second)
		three.set(func() { three.faults.killed = true })
		three.stop()
		w.within(20*time.Second, 8, "a crash")
		four := w.start("four", random(), Options{})
		w.play(8 * time.Second)
		if four.g.Held().IsEmpty() {
			t.Error("nobody has seen the one that came")
		}
	})
}

// TestDeaf: what a member has not heard of for long is not dead if it was renewed all the same.
func TestDeaf(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one, two, three := w.three(Options{})
		before := []shard.Set{one.g.Held(), two.g.Held(), three.g.Held()}
		two.set(func() { two.faults.deaf = true })
		w.play(30 * time.Second)
		for i, p := range []*process{one, two, three} {
			if p.g.Held() != before[i] {
				t.Errorf("%s holds %s, and has held %s", p.name, p.g.Held(), before[i])
			}
		}
	})
}

func TestReport(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var kinds []Kind
		one := w.start("one", random(), Options{
			Layout: shard.Layout{Slots: 4}, OnChange: func(c Change) { kinds = append(kinds, c.Kind) },
		})
		w.play(3 * time.Second)
		got, err := Read(t.Context(), w.server.Config(), "a", "gateways")
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		m := got.Members[0]
		want := fmt.Sprintf(`{"group":"a/gateways","of":4,"members":[{"name":"one","slots":[0,1,2,3],`+
			`"since":%q,"renewed":%q}],"moving":[]}`, m.Since.Format(time.RFC3339Nano), m.Renewed.Format(time.RFC3339Nano))
		if string(text) != want {
			t.Errorf("got %s, want %s", text, want)
		}
		if diff := cmp.Diff(*got, one.g.Status().Group); diff != "" {
			t.Errorf("the status is otherwise: %s", diff)
		}
		if age := one.now().Sub(m.Renewed); age < 0 || age > 2*time.Second || one.now().Sub(m.Since) > 5*time.Second {
			t.Errorf("renewed %v ago, since %v", age, m.Since)
		}
		if _, err := Read(t.Context(), w.server.Config(), "a", "none"); !errors.Is(err, ErrNotGroup) {
			t.Errorf("of none: %v", err)
		}
		one.stop()
		<-one.ended
		if kinds = slices.Compact(kinds); !slices.Equal(kinds, []Kind{Joined, Gained, Moving, Released, Left}) {
			t.Errorf("changes: %v", kinds)
		}
	})
}

func TestMetrics(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one := w.start("one", random(), Options{})
		reg := prometheus.NewPedanticRegistry()
		if err := reg.Register(one.g.Collector()); err != nil {
			t.Fatal(err)
		}
		w.play(3 * time.Second)
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			m := f.GetMetric()[0]
			got[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
		if age := got["fairlead_shard_renewal_age_seconds"]; age < 0 || age > 2 {
			t.Errorf("the last renewal was %v ago", age)
		}
		delete(got, "fairlead_shard_renewal_age_seconds")
		want := map[string]float64{
			"fairlead_shard_slots_held": 8, "fairlead_shard_members": 1, "fairlead_shard_slots_gained_total": 8,
			"fairlead_shard_slots_released_total": 0, "fairlead_shard_slots_moving": 0, "fairlead_shard_lost_terms_total": 0,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestOptions(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		good := Options{Namespace: "a", Name: "g", Role: "reconcile"}
		for reason, change := range map[string]func(*Options){
			"no namespace":        func(o *Options) { o.Namespace = "" },
			"no name":             func(o *Options) { o.Name = "" },
			"no role":             func(o *Options) { o.Role = "" },
			"too long a name":     func(o *Options) { o.Name = strings.Repeat("x", 64) },
			"no name of a Lease":  func(o *Options) { o.Name = "Gateways" },
			"odd slots":           func(o *Options) { o.Layout.Slots = 3 },
			"too heavy":           func(o *Options) { o.Weight = maxWeight + 1 },
			"the leader's name":   func(o *Options) { o.Leader = "g" },
			"renewed too rarely":  func(o *Options) { o.period = 5 * time.Second },
			"respected too long":  func(o *Options) { o.Duration = time.Hour },
			"respected too short": func(o *Options) { o.Renew = 13 * time.Second },
		} {
			o := good
			change(&o)
			if _, err := New(w.server.Config(), o); err == nil {
				t.Errorf("%s is accepted", reason)
			}
		}
		if _, err := New(nil, good); err == nil {
			t.Error("no configuration is accepted")
		}
		g, err := New(w.server.Config(), good)
		if err != nil {
			t.Fatal(err)
		}
		if g.opt.Duration != 15*time.Second || g.opt.Renew != 8*time.Second || g.opt.period != 2*time.Second ||
			g.opt.Drain != 10*time.Second || g.Layout() != (shard.Layout{Slots: 64}) {
			t.Errorf("the defaults are %+v", g.opt)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := g.Run(ctx); err != nil {
			t.Errorf("a run that ends at once: %v", err)
		}
		if n := len(w.server.Log().Select(apiserver.Match{Verb: "create"})); n > 0 {
			t.Errorf("it has created %d Leases", n)
		}
	})
}

func BenchmarkFence(b *testing.B) {
	renewal := &leasing.Renewal{Clock: leasing.Clock{Now: time.Now}, Bound: time.Hour}
	renewal.Renewed(leasing.Stamp{Time: time.Now()})
	g := &Group{fence: &fence{}}
	g.fence.open(&permit{slots: shard.Layout{}.All(), renewal: renewal})
	for b.Loop() {
		if err := g.Fence(7); err != nil {
			b.Fatal(err)
		}
	}
}
