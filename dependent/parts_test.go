package dependent

import (
	"context"
	"errors"
	"testing"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
)

var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// primaryMarks returns the marks of a primary with the uid "p" and the generation 1.
func primaryMarks() *marks {
	return &marks{controller: "gateways", primary: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "a", Name: "web", UID: "p", Generation: 1,
	}}}
}

func noMemory() *remembered {
	return &remembered{children: map[childKey]*child{}, outsides: map[int]*outside{}}
}

// childOf returns a ConfigMap that the owner controls.
func childOf(owner types.UID, version string) *corev1.ConfigMap {
	yes := true
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "a", Name: "page", UID: "c", ResourceVersion: version,
		OwnerReferences: []metav1.OwnerReference{{UID: owner, Controller: &yes}},
	}}
}

// TestAttempts checks which children a round does not try again.
func TestAttempts(t *testing.T) {
	t.Parallel()
	at, failed := childKey{node: 1}, errors.New("failed")
	for _, tc := range []struct {
		reason  string
		o       op
		done    bool
		err     error
		removed bool
	}{
		{"a failed apply", op{verb: verbApply, err: failed}, true, failed, false},
		{"a child that was deleted for a new one", op{verb: verbApply, replaced: true}, false, nil, true},
		{"a replacement that failed", op{verb: verbApply, replaced: true, err: failed}, true, failed, false},
		{"a deletion", op{verb: verbDelete}, true, nil, true},
	} {
		a := newAttempts()
		tc.o.at = at
		a.add(&tc.o)
		done, err := a.result(at)
		if done != tc.done || !errors.Is(err, tc.err) || a.removed[at] != tc.removed {
			t.Errorf("%s: done %t, error %v, removed %t", tc.reason, done, err, a.removed[at])
		}
	}
}

// TestComparer checks the decision about one child, for each state of the cache and of the memory.
func TestComparer(t *testing.T) {
	t.Parallel()
	at := childKey{key: client.Key{Namespace: "a", Name: "page"}}
	desired := sum{1}
	same := &child{uid: "c", want: desired, seen: "5"}
	contended := &child{
		uid: "c", want: desired, seen: "4", applied: began, again: patience + 1, fields: unique.Make("{}"), has: sum{2},
	}
	missing := apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, "page")
	for _, tc := range []struct {
		reason  string
		is      *corev1.ConfigMap
		known   *child
		tried   bool
		blocked bool
		due     bool
		ready   bool
		err     error
	}{
		{reason: "it does not exist", due: true},
		{reason: "it does not exist yet, after an apply", tried: true},
		{reason: "it does not exist, and an earlier node is not ready", blocked: true},
		{reason: "its owned fields are not known", is: childOf("p", "5"), due: true},
		{reason: "it is as desired", is: childOf("p", "5"), known: same, ready: true},
		{reason: "it was applied, and the cache is behind", is: childOf("p", "5"), tried: true, ready: true},
		{reason: "another controller owns it", is: childOf("other", "5"), err: ErrForeign},
		{
			reason: "another client keeps changing it", is: childOf("p", "5"), known: contended, ready: true,
			err: ErrContended,
		},
	} {
		known, done := noMemory(), newAttempts()
		if tc.known != nil {
			one := *tc.known
			known.children[at] = &one
		}
		if tc.tried {
			done.tried[at] = nil
		}
		n := &node{
			name: "page", ready: func(any) bool { return true },
			get: func(context.Context, *client.Client, client.Key) (client.Object, error) {
				if tc.is == nil {
					return nil, missing
				}
				return tc.is, nil
			},
		}
		s, w := &state{node: n}, &want{key: at.key, obj: childOf("p", ""), sum: desired}
		if tc.blocked {
			s.blocked = []string{"database"}
		}
		p := comparer{marks: primaryMarks(), known: known, attempts: &done, now: began.Add(time.Millisecond)}
		o := p.compare(t.Context(), s, w)
		if (o != nil) != tc.due || w.ready != tc.ready || !errors.Is(w.err, tc.err) {
			t.Errorf("%s: due %t, ready %t, error %v", tc.reason, o != nil, w.ready, w.err)
		}
	}
}

// TestExternalsPart checks when an external resource is read again, and what a failure leaves behind.
func TestExternalsPart(t *testing.T) {
	t.Parallel()
	n := &node{name: "database", ready: func(any) bool { return true }, external: &external{drift: time.Minute}}
	known := noMemory()
	due := func(when string, now time.Time, m *marks, want bool) *state {
		t.Helper()
		done := newAttempts()
		s := &state{node: n, decided: true, wanted: true, asked: true}
		s.readOutside(known, m.primary)
		x := externals{marks: m, known: known, attempts: &done, now: now}
		o := x.compare(s)
		if (o != nil) != want {
			t.Errorf("%s: due %t", when, o != nil)
		}
		return s
	}
	record := func(now time.Time, o *op) {
		o.state, o.verb = &state{node: n}, verbOutside
		done := newAttempts()
		x := externals{marks: primaryMarks(), known: known, attempts: &done, now: now}
		x.record(o)
	}
	due("before the first read", began, primaryMarks(), true)
	record(began, &op{outside: "db"})
	if s := due("after a read", began.Add(time.Second), primaryMarks(), false); s.status.State != StateReady ||
		!s.until.Equal(began.Add(time.Minute)) || s.unknown() {
		t.Errorf("after a read: %+v until %v", s.status, s.until)
	}
	newer := primaryMarks()
	newer.primary.SetGeneration(2)
	due("after a change of the primary", began.Add(time.Second), newer, true)
	due("after the interval", began.Add(time.Minute), primaryMarks(), true)
	record(began.Add(time.Second), &op{err: errors.New("failed")})
	if s := due("after a failure", began.Add(time.Second), primaryMarks(), true); !s.unknown() || s.outside.is != "db" {
		t.Errorf("after a failure: %+v", s.outside)
	}
	record(began, &op{outside: "db"})
	n.ready, n.external.poll = func(any) bool { return false }, flow.Backoff{Base: 2 * time.Second, Max: 5 * time.Second}
	at := began
	for i, want := range []struct{ least, most time.Duration }{
		{2 * time.Second, 2 * time.Second}, {2 * time.Second, 4 * time.Second}, {2500 * time.Millisecond, 5 * time.Second},
	} {
		s := due("it is not ready", at, primaryMarks(), false)
		if wait := s.until.Sub(at); wait < want.least || wait > want.most {
			t.Errorf("read %d that finds it not ready: the next one follows after %v", i, wait)
		}
		at = s.until
		due("after the poll interval", at, primaryMarks(), true)
		record(at, &op{outside: "db"})
	}
	known.outsides[0].generation = 0
	record(at, &op{outside: "db"})
	if s := due("not ready after a newer spec", at, primaryMarks(), false); !s.until.Equal(at.Add(2 * time.Second)) {
		t.Errorf("after a newer spec the next read follows after %v", s.until.Sub(at))
	}
	record(began, &op{err: errors.New("failed"), gone: true})
	if s := due("after its deletion", began, primaryMarks(), true); s.outside.is != nil {
		t.Errorf("after its deletion: %+v", s.outside)
	}
}
