package reconcile

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed"
)

// intakeDesk is an intake with a server and a sink that records its calls.
type intakeDesk struct {
	*intake
	t      *testing.T
	server *apiserver.Server
	host   *testbed.Host
	calls  []string
}

func newIntakeDesk(t *testing.T) *intakeDesk {
	server := testbed.Server(t, apiserver.Options{})
	host := testbed.NewHost(t, server.Config(), testbed.Mapper(testbed.Resources()))
	d := &intakeDesk{t: t, server: server, host: host}
	main := &watch{object: &testbed.Gateway{}}
	if err := main.resolve(testbed.Scheme()); err != nil {
		t.Fatal(err)
	}
	d.intake = &intake{
		name: "gateways", owner: "reconcile/gateways", main: main, interval: -1, cache: host.Cache,
		log: slog.New(slog.DiscardHandler), mapErrors: newMetrics("gateways").mapErrors, wake: func() {},
		synced: make(chan struct{}),
		sink: sink{
			changed: func(k Key, why Reason, p priority, _ rank, now *facts) {
				d.calls = append(d.calls, fmt.Sprintf("%s changed by %s %s, own %t, low %t", k, why.Type, why.Source, now != nil,
					p == low))
			},
			deleted: func(k Key, why Reason) { d.calls = append(d.calls, fmt.Sprintf("%s deleted", k)) },
			left:    func(k Key) { d.calls = append(d.calls, fmt.Sprintf("%s left", k)) },
		},
	}
	host.Start(t.Context())
	return d
}

// want waits until the intake has taken all events, and compares the calls of the sink since the last time.
func (d *intakeDesk) want(reason string, calls ...string) {
	d.t.Helper()
	testbed.Settle(3 * time.Second)
	for d.step() {
	}
	got := d.calls
	d.calls = nil
	if slices.Sort(got); !slices.Equal(got, calls) {
		d.t.Errorf("%s:\n got %q\nwant %q", reason, got, calls)
	}
}

func (d *intakeDesk) end() {
	d.close()()
	if err := d.host.Stop(); err != nil {
		d.t.Error(err)
	}
	d.server.Close()
}

func owned(name, owner string) *corev1.ConfigMap {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}}
	if owner != "" {
		m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(
			&metav1.ObjectMeta{Name: owner, UID: "1"}, testbed.GroupVersion.WithKind("Gateway"))}
	}
	return m
}

// TestIntake: events become keys of primaries, with a reason and a priority.
func TestIntake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newIntakeDesk(t)
		defer d.end()
		testbed.Put(t, d.server, testbed.New("a", "web")) // first, since a refused open may list, too
		testbed.Put(t, d.server, owned("one", "web"))
		if _, err := d.open(d.main, nil); !errors.Is(err, errNotRunning) || d.running() {
			t.Errorf("before the start, open returns %v", err)
		}
		d.start(t.Context())
		maps := newWatch[corev1.ConfigMap](ownerOf, nil)
		if err := maps.resolve(testbed.Scheme()); err != nil {
			t.Fatal(err)
		}
		for _, w := range []*watch{d.main, maps} {
			if _, err := d.open(w, nil); err != nil {
				t.Fatal(err)
			}
		}
		if s := d.snapshot(); s.synced || len(s.unlisted) != 2 || s.primary == nil {
			t.Errorf("before the lists, the state is %+v", s)
		}
		d.want("the lists", "a/web changed by Initial Gateway, own true, low true")
		if s := d.snapshot(); !s.synced || len(s.unlisted) != 0 || !d.awaitSync(t.Context(), time.Hour) {
			t.Errorf("after the lists, the state is %+v", s)
		}
		if uid, ok := d.uidOf(Key{Namespace: "a", Name: "web"}); !ok || uid == "" {
			t.Errorf("the uid is %q", uid)
		}
		testbed.Put(t, d.server, owned("two", "web"))
		testbed.Put(t, d.server, owned("three", ""))
		d.want("a related object", "a/web changed by Added ConfigMap, own false, low false")
		moved := owned("two", "other")
		moved.Labels = map[string]string{"l": "1"}
		testbed.Put(t, d.server, moved)
		d.want("both owners", "a/other changed by Modified ConfigMap, own false, low false",
			"a/web changed by Modified ConfigMap, own false, low false")
		if err := d.server.Remove(testbed.Gateways, "a", "web"); err != nil {
			t.Fatal(err)
		}
		d.want("a deletion", "a/web deleted")
		release := d.close()
		testbed.Put(t, d.server, testbed.New("a", "late"))
		d.want("after close")
		release()
	})
}

// TestFollows: a followed watch belongs to one primary. An equal declaration replaces its functions, another kind
// replaces the watch, and removal closes it.
func TestFollows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newIntakeDesk(t)
		defer d.end()
		fs := &follows{intake: d.intake, scheme: func() *runtime.Scheme { return testbed.Scheme() }}
		k := Key{Namespace: "a", Name: "web"}
		named := func(name string) *watch {
			return newWatch[corev1.ConfigMap](nil, []WatchOption{
				Named("settings"), If(func(m *corev1.ConfigMap) bool { return m.Name == name }),
			})
		}
		follow := func(w *watch) {
			t.Helper()
			if err := fs.add(k, "settings", w); err != nil {
				t.Fatal(err)
			}
		}
		if err := fs.add(k, "settings", named("one")); !errors.Is(err, errNotRunning) {
			t.Errorf("before the start: %v", err)
		}
		d.start(t.Context())
		follow(named("one"))
		d.want("no object")
		testbed.Put(t, d.server, owned("one", ""))
		testbed.Put(t, d.server, owned("two", ""))
		d.want("the followed object", "a/web changed by Added settings, own false, low false")
		opened := d.snapshot().watches[0]
		follow(named("two"))
		if all := d.snapshot().watches; len(all) != 1 || all[0] != opened {
			t.Errorf("an equal declaration opens another watch: %v", all)
		}
		testbed.Put(t, d.server, owned("two", "web"))
		d.want("the other function", "a/web changed by Modified settings, own false, low false")
		follow(newWatch[testbed.Gateway](nil, []WatchOption{Named("settings")}))
		if all := d.snapshot().watches; len(all) != 1 || all[0] == opened {
			t.Errorf("another kind keeps the watch: %v", all)
		}
		fs.remove(k, "other")
		if fs.removeAll(k); len(d.snapshot().watches) != 0 {
			t.Error("a watch is open after its removal")
		}
		follow(named("one"))
		d.close()()
		fs.clear()
		if err := fs.add(k, "settings", named("one")); !errors.Is(err, errNotRunning) || fs.get(k, "settings") != nil {
			t.Errorf("after the end: %v", err)
		}
	})
}
