package fairlead_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/observe"
)

// serving makes a process that always reads config maps, and works on them while it leads.
func serving(t *testing.T, s *apiserver.Server, name string, d *diary, opts ...fairlead.Option) *fairlead.Runtime {
	t.Helper()
	rt := fairlead.New(s.Config(), append([]fairlead.Option{fairlead.WithLeaderElection("default", "operator")},
		opts...)...)
	h, err := cache.AcquireFor[corev1.ConfigMap](rt.Cache())
	if err != nil {
		t.Fatal(err)
	}
	rt.AddAlways("api", func(ctx context.Context) error {
		defer h.Release()
		select {
		case <-h.Synced():
		case <-ctx.Done():
		}
		d.add(name + " serves")
		<-ctx.Done()
		d.add(name + " stops serving")
		return nil
	})
	rt.Add("work", func(ctx context.Context) error {
		d.add(name + " works")
		<-ctx.Done()
		d.add(name + " drains")
		<-time.After(time.Second)
		d.add(name + " has worked")
		return nil
	})
	return rt
}

// Every process serves, also before one leads. One process works at a time, and a stopped process serves until its work
// has ended.
func TestAddAlways(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		put(t, s, "x")
		var d diary
		refused := s.On(leases, apiserver.Answer(apiserver.Failure(500)))
		one := run(serving(t, s, "one", &d))
		time.Sleep(time.Minute)
		if diff := cmp.Diff([]string{"one serves"}, d.all()); diff != "" {
			t.Errorf("while no process leads: -want +got:\n%s", diff)
		}
		refused.Off()
		time.Sleep(time.Minute)
		two := run(serving(t, s, "two", &d))
		time.Sleep(time.Minute)
		readiness(t, one.Runtime, "of the leader", 200, "ready")
		readiness(t, two.Runtime, "of the other", 200, "standby", "another process leads")
		gets := s.Log().Count(apiserver.Match{Verb: "get", Resource: "configmaps"})
		if cm, err := client.Get[corev1.ConfigMap](t.Context(), two.Client(),
			client.Key{Namespace: "a", Name: "x"}); err != nil || cm.Name != "x" {
			t.Errorf("the standby reads %v, %v", cm, err)
		}
		if n := s.Log().Count(apiserver.Match{Verb: "get", Resource: "configmaps"}) - gets; n != 0 {
			t.Errorf("%d requests for the read", n)
		}
		if err := one.end(); err != nil {
			t.Error(err)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if err := two.end(); err != nil {
			t.Error(err)
		}
		want := []string{
			"one serves", "one works", "two serves", "one drains", "one has worked", "one stops serving",
			"two works", "two drains", "two has worked", "two stops serving",
		}
		if diff := cmp.Diff(want, d.all()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

// A process that serves is ready if its served parts are, whether it leads or not.
func TestReadinessOfServingParts(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		put(t, s, "x")
		var d diary
		none := s.On(leases, apiserver.Answer(apiserver.Failure(500)))
		forbidden := s.On(apiserver.Match{Resource: "configmaps"}, apiserver.Answer(apiserver.Failure(403)))
		rt := serving(t, s, "one", &d, fairlead.WithStaleness(2*time.Minute))
		secrets := observe.Selector("secrets")
		observe.Source[corev1.Secret](rt, secrets)
		observe.On(rt, secrets, func(context.Context, observe.Event[corev1.Secret]) error { return nil })
		readiness(t, rt, "before it runs", 503)
		r := run(rt)
		time.Sleep(time.Second)
		readiness(t, rt, "what it serves is not listed", 503, "configmaps")
		forbidden.Off()
		time.Sleep(time.Minute)
		readiness(t, rt, "no process leads", 200, "standby", "cannot read the lease")
		noSecrets := s.On(apiserver.Match{Resource: "secrets"}, apiserver.Answer(apiserver.Failure(403)))
		none.Off()
		time.Sleep(20 * time.Second)
		readiness(t, rt, "it leads, and has not begun all of its work", 200, "starting", "secrets")
		time.Sleep(3 * time.Minute)
		readiness(t, rt, "the kind of its work is refused, which is reported", 200, "secrets: Forbidden")
		noSecrets.Off()
		noSecrets = s.On(apiserver.Match{Resource: "secrets"}, apiserver.Answer(apiserver.Failure(500)))
		s.DropConnections()
		time.Sleep(3 * time.Minute)
		readiness(t, rt, "what it works on is stale", 503, "secrets")
		noSecrets.Off()
		time.Sleep(time.Minute)
		readiness(t, rt, "it leads", 200, "ready")
		s.On(apiserver.Match{Resource: "configmaps"}, apiserver.Answer(apiserver.Failure(500)))
		s.DropConnections()
		time.Sleep(3 * time.Minute)
		readiness(t, rt, "what it serves is stale", 503, "configmaps")
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}

// A failure of a part that serves stops the runtime. Such a part must be declared before Run.
func TestAddAlwaysMistakes(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		broken := errors.New("broken")
		rt := fairlead.New(s.Config())
		rt.AddAlways("api", func(context.Context) error { return broken })
		if err := rt.Run(t.Context()); !errors.Is(err, broken) || !strings.Contains(err.Error(), "api") {
			t.Errorf("Run returns %v", err)
		}
		rt = fairlead.New(s.Config())
		r := run(rt)
		time.Sleep(time.Second)
		rt.AddAlways("late", func(context.Context) error { return nil })
		if err := r.end(); err == nil || !strings.Contains(err.Error(), "has been run already") ||
			!strings.Contains(err.Error(), "late") {
			t.Errorf("Run returns %v", err)
		}
		rt = fairlead.New(s.Config())
		rt.AddAlways("nothing", nil)
		if err := rt.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "nothing") {
			t.Errorf("Run returns %v", err)
		}
	})
}
