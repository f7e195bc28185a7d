package group

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/leasing"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/shard"
)

var (
	realClock  = leasing.Clock{Now: time.Now, After: time.After}
	fourSlots  = shard.Layout{Slots: 4}
	discardLog = slog.New(slog.DiscardHandler)
)

// options returns the options of a member, with their defaults.
func options(t *testing.T) *Options {
	t.Helper()
	o := &Options{Namespace: "a", Name: "gateways", Role: "reconcile", Member: "one", Layout: fourSlots}
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	return o
}

// withServer runs a test of one part with a server on fake time.
func withServer(t *testing.T, test func(t *testing.T, s *apiserver.Server, c *leasing.Client)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := testbed.Server(t, apiserver.Options{})
		defer server.Close()
		c, err := newClient(server.Config(), "a", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		test(t, server, c)
	})
}

// TestFencePart checks that a permit is void without slots, without renewals, and after its end.
func TestFencePart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, renewal := &fence{}, &leasing.Renewal{Clock: realClock, Bound: 6 * time.Second}
		if err := f.permit().check(1); !errors.Is(err, ErrNotHeld) || f.permit().age() >= 0 {
			t.Errorf("before there is a permit: %v, age %v", err, f.permit().age())
		}
		renewal.Renewed(leasing.Stamp{Time: time.Now()})
		since := time.Now()
		f.open(&permit{slots: fourSlots.Set(1), moving: map[int]time.Time{1: since}, renewal: renewal})
		if err := f.permit().check(1); err != nil || !errors.Is(f.permit().check(2), ErrNotHeld) {
			t.Errorf("the held slot: %v, the other one: %v", err, f.permit().check(2))
		}
		if got := f.permit(); !got.losingSince(1).Equal(since) || !got.losingSince(2).IsZero() {
			t.Errorf("slot 1 is being lost since %v, slot 2 since %v", got.losingSince(1), got.losingSince(2))
		}
		time.Sleep(6 * time.Second)
		if err := f.permit().check(1); !errors.Is(err, ErrLost) || !f.permit().held(fourSlots).IsEmpty() {
			t.Errorf("without renewals: %v, held %s", err, f.permit().held(fourSlots))
		}
		f.close()
		if err := f.permit().check(1); !errors.Is(err, ErrNotHeld) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// recorder is a participant that records its calls.
type recorder struct {
	name string
	hold chan struct{} // Lose returns when it is closed, or with ctx; nil: at once

	mu    *sync.Mutex
	calls *[]string
}

func (r recorder) add(call string, slots shard.Set) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*r.calls = append(*r.calls, r.name+" "+call+" "+slots.String())
}

func (r recorder) Gain(_ context.Context, slots shard.Set) error {
	r.add("gains", slots)
	return nil
}

func (r recorder) Lose(ctx context.Context, slots shard.Set, _ func(shard.Set)) {
	r.add("loses", slots)
	if r.hold != nil {
		select {
		case <-r.hold:
		case <-ctx.Done():
		}
	}
}

// TestHandoverPart checks the order of participants, that a slot is held until the last of them has lost it, and that a
// revoked handover opens its fence never again.
func TestHandoverPart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var calls []string
		hold, f := make(chan struct{}), &fence{}
		ctx, end := context.WithCancel(t.Context())
		defer end()
		renewal := &leasing.Renewal{Clock: realClock, Bound: time.Hour}
		renewal.Renewed(leasing.Stamp{Time: time.Now()})
		h := &handover{
			layout: fourSlots, drain: time.Minute, clock: realClock, log: discardLog, ctx: ctx, fence: f, renewal: renewal,
			participants: []Participant{
				recorder{"sources", nil, &mu, &calls}, recorder{"controllers", hold, &mu, &calls},
			},
			announce: func(Change) {}, wake: func() {}, failed: func(err error) { t.Error(err) },
			have: map[int]*holding{}, released: fourSlots.Set(),
		}
		h.moves, h.cut = context.WithCancelCause(ctx)
		h.open()
		follow := func(mine, targets shard.Set) {
			t.Helper()
			if err := h.follow(mine, targets); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		follow(fourSlots.Set(0, 1), fourSlots.Set(0, 1))
		follow(fourSlots.Set(0, 1), fourSlots.Set(0))
		if err := f.permit().check(1); err != nil || f.permit().losingSince(1).IsZero() || !h.unrecorded().IsEmpty() {
			t.Errorf("while work on slot 1 runs: %v, released %s", err, h.unrecorded())
		}
		close(hold)
		synctest.Wait()
		if err := f.permit().check(1); err == nil || h.unrecorded().String() != "1" {
			t.Errorf("after the work on slot 1: %v, released %s", err, h.unrecorded())
		}
		want := []string{"sources gains 0-1", "controllers gains 0-1", "controllers loses 1", "sources loses 1"}
		if mu.Lock(); !slices.Equal(calls, want) {
			t.Errorf("The calls are %q, want %q.", calls, want)
		}
		mu.Unlock()
		if err := h.follow(fourSlots.Set(), fourSlots.Set()); !errors.Is(err, errRecord) {
			t.Errorf("a held slot that the record gives to another member: %v", err)
		}
		if held, first := h.revoke(); held.String() != "0" || !first {
			t.Errorf("It held %s, first %t.", held, first)
		}
		if _, first := h.revoke(); first {
			t.Error("It is revoked twice.")
		}
		end()
		follow(fourSlots.Set(0, 2), fourSlots.Set(0, 2))
		h.close()
		if f.permit() != nil {
			t.Errorf("after the end: %+v", f.permit())
		}
	})
}

// TestOwnLeasePart checks that the Lease is renewed, that a mark of another member ends the renewal, and that remove
// deletes the Lease.
func TestOwnLeasePart(t *testing.T) {
	withServer(t, func(t *testing.T, s *apiserver.Server, c *leasing.Client) {
		opt, v := options(t), newView(time.Now)
		l := &ownLease{
			opt: opt, clock: realClock, log: discardLog, view: v, census: &census{}, setError: func(_ string, err error) {
				if err != nil {
					t.Error(err)
				}
			},
			ready:    func() string { return "{}" },
			holdings: func() *holdings { return &holdings{Of: 4, By: "uid", Slots: "1-2", Weight: 1} },
			client:   c, name: leaseName(opt.Name, "x"), renewed: make(chan struct{}),
			renewal: leasing.Renewal{Clock: realClock, Bound: opt.Renew},
		}
		l.remove(t.Context()) // nothing to delete yet
		if err := l.create(t.Context(), "uid"); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- l.renew(t.Context()) }()
		l.enter("other")
		time.Sleep(time.Minute)
		if age, _ := l.renewal.Age(); age > opt.period || len(ended) > 0 {
			t.Errorf("The last renewal is %v old, ended %d times.", age, len(ended))
		}
		if _, err := s.Change(leaseResource, "a", "gateways-x", func(u *unstructured.Unstructured) {
			a := u.GetAnnotations()
			if a[groupAnnotation] != "other" || a[holdingsAnnotation] != `{"of":4,"by":"uid","slots":"1-2","weight":1}` {
				t.Errorf("The annotations are %v.", a)
			}
			a[deadAnnotation] = "another"
			u.SetAnnotations(a)
		}); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "marked as dead by another") {
			t.Errorf("It ended with %v.", err)
		}
		l.remove(t.Context())
		if _, err := s.Object(leaseResource, "a", "gateways-x"); err == nil {
			t.Error("The Lease is not deleted.")
		}
	})
}

// TestLivenessPart checks when a member counts as dead: not before its Lease was unchanged, or known to be absent, for
// its duration. Its Lease is then marked, and deleted once the record does not contain the member.
func TestLivenessPart(t *testing.T) {
	withServer(t, func(t *testing.T, s *apiserver.Server, c *leasing.Client) {
		opt, v := options(t), newView(time.Now)
		l := &liveness{client: c, view: v, opt: opt, now: time.Now}
		l.addEnded("old")
		own, err := c.Create(t.Context(), &lease{ObjectMeta: metav1.ObjectMeta{
			Name: "gateways-x", Annotations: map[string]string{groupAnnotation: "uid"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		v.observe(own)
		named := own.DeepCopy()
		named.Annotations[holdingsAnnotation] = holdings{Of: 4, By: "namespace", Slots: "1", Weight: 1}.encode()
		r := &record{layout: fourSlots, members: []member{{ID: "x"}, {ID: "absent"}, {ID: "me"}}}
		check := func(when string, first bool, want ...string) {
			t.Helper()
			got, err := l.dead(t.Context(), "me", r)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s dead are %q, want %q, error %v", when, got, want, err)
			}
			if got := l.isFirst("me", r); got != first {
				t.Errorf("%s it is the first: %t", when, got)
			}
		}
		check("at the beginning", false, "old")
		time.Sleep(opt.Renew)
		check("when x may not work any more", true, "old")
		time.Sleep(opt.Duration - opt.Renew)
		check("after the duration", false, "x", "absent", "old") // the mark is a change of its Lease
		marked, err := c.Get(t.Context(), "gateways-x")
		if err != nil || marked.Annotations[deadAnnotation] != "one (me)" {
			t.Errorf("The Lease has %v, error %v.", marked.Annotations, err)
		}
		for _, tc := range []struct {
			reason string
			lease  *lease
			record *record
			group  types.UID
			want   bool
		}{
			{"It is marked as dead.", marked, fresh(fourSlots, ""), "other", false},
			{"It takes part in another group Lease.", own, r, "other", true},
			{"The record does not contain it.", own, fresh(fourSlots, ""), "uid", true},
			{"It is a member.", own, r, "uid", false},
			{"It names a slot that the record gives to nobody.", named, r, "uid", true},
		} {
			if some, gone := l.strangers([]lease{*tc.lease}, tc.record, tc.group); some != tc.want || gone {
				t.Errorf("%s It is a stranger: %t, it is gone: %t.", tc.reason, some, gone)
			}
		}
		l.clean(t.Context(), "me", r)
		if _, err := s.Object(leaseResource, "a", "gateways-x"); err != nil {
			t.Errorf("The Lease of a member is deleted: %v.", err)
		}
		r.members = r.members[1:]
		l.clean(t.Context(), "me", r)
		if _, err := s.Object(leaseResource, "a", "gateways-x"); err == nil {
			t.Error("The Lease of a dead member is not deleted.")
		}
		if l.forgetEnded(r); l.hasEnded("old") {
			t.Error("An incarnation without a Lease is not forgotten.")
		}
	})
}

// TestGroupLeasePart checks that the record is written by compare-and-swap, and that an edit by hand is an error.
func TestGroupLeasePart(t *testing.T) {
	withServer(t, func(t *testing.T, s *apiserver.Server, c *leasing.Client) {
		var seen []int64
		l := &groupLease{
			client: c, view: newView(time.Now), opt: options(t), layout: fourSlots, clock: realClock,
			setRecord: func(r *record) { seen = append(seen, r.rev) },
		}
		if got, err := l.get(t.Context()); got != nil || err != nil {
			t.Fatalf("without a group: %v, %v", got, err)
		}
		isFresh := func(*lease) bool { return true }
		object, err := l.create(t.Context(), isFresh)
		if err != nil {
			t.Fatal(err)
		}
		r, err := l.read(object, false, "")
		if err != nil || len(r.members) > 0 || l.recreatedRecently() {
			t.Fatalf("the new record: %+v, %v", r, err)
		}
		next, _ := change{join: &member{ID: "x", Weight: 1}}.apply(r)
		if err := l.write(t.Context(), object, next); err != nil {
			t.Fatal(err)
		}
		if err := l.write(t.Context(), object, next); !errors.Is(err, leasing.ErrConflict) {
			t.Errorf("a write to the old version: %v", err)
		}
		if !slices.Equal(seen, []int64{0, 1}) {
			t.Errorf("The records are %v.", seen)
		}
		if _, err := l.read(object, true, ""); !errors.Is(err, errRecord) {
			t.Errorf("an older record: %v", err)
		}
		other := object.DeepCopy()
		other.Annotations[roleAnnotation] = "watch"
		if _, err := l.read(other, false, ""); !errors.Is(err, ErrRole) {
			t.Errorf("another role: %v", err)
		}
		if _, err := l.read(other, true, ""); !errors.Is(err, errRecord) {
			t.Errorf("another role of the joined group: %v", err)
		}
		l.stale = true
		now, err := l.get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.discard(t.Context(), now, errFormat(2)); !errors.Is(err, errRecord) {
			t.Error(err)
		}
		if _, err := s.Object(leaseResource, "a", "gateways"); err != nil {
			t.Errorf("The record of a newer program is deleted: %v.", err)
		}
		if err := l.discard(t.Context(), now, errRecord); !errors.Is(err, errRecord) {
			t.Error(err)
		}
		again, err := l.create(t.Context(), isFresh)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.read(again, false, ""); err != nil || !l.recreatedRecently() {
			t.Errorf("the group that was created again: %v, recently %t", err, l.recreatedRecently())
		}
		time.Sleep(l.opt.Duration)
		if l.recreatedRecently() {
			t.Error("It waits longer than the duration of a Lease.")
		}
	})
}

// TestViewPart checks that old versions change nothing, and when a list is due because the watch is late.
func TestViewPart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := newView(time.Now)
		at := func(name, version string) *lease {
			return &lease{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
		}
		version := func() string {
			s, ok := v.get("x")
			if !ok {
				return ""
			}
			return s.Lease().ResourceVersion
		}
		v.observe(at("x", "5"))
		v.observe(at("x", "4"))
		if v.setAbsent("x", "4"); version() != "5" {
			t.Errorf("An old version replaced it: %q.", version())
		}
		v.setAbsent("x", "6")
		time.Sleep(time.Second)
		if d, known := v.absentFor("x"); version() != "" || !known || d != time.Second {
			t.Errorf("It is absent for %v, known %t.", d, known)
		}
		if !v.lags() {
			t.Error("Without an own Lease the watch counts as current.")
		}
		v.setOwn("own")
		v.deliver(at("own", "7"))
		if v.countRenewal("7"); v.lags() {
			t.Error("The watch has delivered the last renewal.")
		}
		v.countRenewal("8")
		if v.countRenewal("9"); !v.lags() {
			t.Error("The watch has missed two renewals.")
		}
	})
}
