package fairlead_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/reconcile"
)

// Readiness and health cover what reconcilers watch, not only what observers do.
func TestHealthOfReconcilers(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		rt := fairlead.New(s.Config())
		reconcile.New[corev1.ConfigMap](rt, "maps", reconcile.Func[corev1.ConfigMap](func(context.Context, *corev1.ConfigMap) (reconcile.Result, error) {
			return reconcile.Done, nil
		}))
		forbidden := s.On(apiserver.Match{Resource: "configmaps"}, apiserver.Answer(apiserver.Failure(403)))
		r := run(rt)
		synctest.Wait()
		if code, body := get(rt, "/readyz"); code != 503 {
			t.Errorf("ready although nothing was listed: %d %s", code, body)
		}
		time.Sleep(6 * time.Minute)
		if code, body := get(rt, "/healthz"); code != 503 {
			t.Errorf("healthy after six minutes of 403: %d %s", code, body)
		}
		if _, body := get(rt, "/metrics"); !strings.Contains(body, `fairlead_store_staleness_seconds{cluster="",group="",namespace="",resource="configmaps"`) {
			t.Errorf("no metrics of the watch")
		}
		forbidden.Off()
		time.Sleep(time.Minute)
		if code, body := get(rt, "/readyz"); code != 200 {
			t.Errorf("%d %s", code, body)
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}

// A name that is missing, as of an environment variable that is not set, must not switch the election off.
func TestLeaderElectionWithoutName(t *testing.T) {
	t.Parallel()
	for _, at := range [][2]string{{"operators", ""}, {"", "gateways"}, {"", ""}} {
		bubble(t, func(t *testing.T, s *apiserver.Server) {
			rt := fairlead.New(s.Config(), fairlead.WithLeaderElection(at[0], at[1]))
			worked := false
			rt.Add("work", func(ctx context.Context) error { worked = true; <-ctx.Done(); return nil })
			r := run(rt)
			time.Sleep(time.Minute)
			if err := r.end(); err == nil || worked {
				t.Errorf("%q: Run returned %v, worked without leadership: %v", at, err, worked)
			}
		})
	}
}
