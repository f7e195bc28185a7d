package fairlead_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testlog"
	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/reconcile"
)

// conditionDiary records the conditions of sources.
type conditionDiary struct {
	diary
	mu   sync.Mutex
	busy map[string]bool
	t    *testing.T
}

func (d *conditionDiary) add(_ context.Context, c fairlead.SourceCondition) {
	name := strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Kind.Kind, c.Namespace, c.Selector))
	d.mu.Lock()
	if d.busy == nil {
		d.busy = map[string]bool{}
	}
	if d.busy[name] {
		d.t.Errorf("%s: concurrent calls", name)
	}
	d.busy[name] = true
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.busy[name] = false
	}()
	state := "works"
	switch {
	case c.Ended:
		state = "ended"
	case c.Degraded:
		state = "degraded"
	}
	d.diary.add(fmt.Sprintf("%s %s %s", name, state, c.Reason))
	if c.Since.IsZero() || c.Degraded != (c.Message != "") {
		d.t.Errorf("got %+v", c)
	}
}

// of returns the conditions of one source.
func (d *conditionDiary) of(name string) (all []string) {
	for _, line := range d.all() {
		if state, ok := strings.CutPrefix(line, name+" "); ok {
			all = append(all, state)
		}
	}
	return all
}

func (d *conditionDiary) want(reason, name string, want ...string) {
	d.t.Helper()
	synctest.Wait()
	if got := d.of(name); !slices.Equal(got, want) {
		d.t.Errorf("%s: got %q, want %q", reason, got, want)
	}
}

// TestSourceConditions checks the calls for sources of an observer and of a controller.
func TestSourceConditions(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		d := &conditionDiary{t: t}
		rt := fairlead.New(s.Config(), fairlead.WithSourceCondition(d.add))
		origin := observe.Source[corev1.Secret](rt, "secrets", cache.Namespaces("a", "b"), cache.Labels("app=web"))
		observe.Known[corev1.Secret](rt, "secrets")
		reconcile.New(rt, "maps", reconcile.Func[corev1.ConfigMap](
			func(context.Context, *corev1.ConfigMap) (reconcile.Result, error) { return reconcile.Done, nil }))
		forbidden := s.On(apiserver.Match{Resource: "configmaps"}, apiserver.Answer(apiserver.Failure(403)))
		r := run(rt)
		time.Sleep(time.Minute)
		d.want("the first list is refused", "ConfigMap", "degraded Forbidden")
		d.want("an observer's source works", "Secret a app=web", "works Watching")
		forbidden.Off()
		time.Sleep(time.Minute)
		d.want("it recovers", "ConfigMap", "degraded Forbidden", "works Watching")
		time.Sleep(time.Hour)
		d.want("watches that end and are opened again are no news", "ConfigMap", "degraded Forbidden", "works Watching")
		unauthorized := s.On(apiserver.Match{Resource: "configmaps"}, apiserver.Answer(apiserver.Failure(401)))
		s.DropConnections()
		time.Sleep(time.Minute)
		unauthorized.Off()
		time.Sleep(time.Minute)
		got := d.of("ConfigMap")
		if len(got) < 4 || !slices.Contains(got, "degraded Unauthorized") || got[len(got)-1] != "works Watching" {
			t.Errorf("after another failure: %q", got)
		}
		if err := origin.SetNamespaces("a"); err != nil {
			t.Fatal(err)
		}
		before := d.of("Secret a app=web")
		b := d.of("Secret b app=web")
		if synctest.Wait(); len(b) == 0 || !slices.Contains(d.of("Secret b app=web"), "ended Ended") {
			t.Errorf("a namespace that is no longer watched: %q", d.of("Secret b app=web"))
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
		d.want("Run has ended the source", "Secret a app=web", append(before, "ended Ended")...)
		d.want("Run has ended the source", "ConfigMap", append(got, "ended Ended")...)
	})
}

// TestSlowSourceCondition: a function that blocks delays no watch, and Run waits for it.
func TestSlowSourceCondition(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		release := make(chan struct{})
		calls := 0
		rt := fairlead.New(s.Config(), fairlead.WithSourceCondition(
			func(context.Context, fairlead.SourceCondition) { calls++; <-release }))
		var d diary
		reconcile.New(rt, "maps", reconcile.Func[corev1.ConfigMap](
			func(_ context.Context, cm *corev1.ConfigMap) (reconcile.Result, error) {
				d.add(cm.Name)
				return reconcile.Done, nil
			}))
		r := run(rt)
		time.Sleep(time.Second)
		put(t, s, "web")
		time.Sleep(time.Second)
		if !slices.Equal(d.all(), []string{"web"}) {
			t.Errorf("reconciled %q", d.all())
		}
		r.stop()
		time.Sleep(time.Second)
		select {
		case err := <-r.err:
			t.Errorf("Run has returned %v during a call", err)
		default:
		}
		close(release)
		if err := <-r.err; err != nil {
			t.Error(err)
		}
		if calls != 2 {
			t.Errorf("%d calls", calls)
		}
	})
}

// TestSourceConditionPanics: a panic is logged and ends nothing.
func TestSourceConditionPanics(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		var log testlog.Book
		rt := fairlead.New(s.Config(), fairlead.WithLogger(log.Logger()), fairlead.WithSourceCondition(
			func(context.Context, fairlead.SourceCondition) { panic("ouch") }))
		observe.Source[corev1.Secret](rt, "secrets")
		observe.Known[corev1.Secret](rt, "secrets")
		r := run(rt)
		time.Sleep(time.Minute)
		if err := r.end(); err != nil {
			t.Error(err)
		}
		if n := strings.Count(log.String(), "the function of WithSourceCondition panicked"); n != 2 ||
			!strings.Contains(log.String(), "condition_test.go") {
			t.Errorf("%d lines:\n%s", n, log.String())
		}
	})
}
