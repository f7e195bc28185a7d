package bubble

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/fairlead-io/fairlead/internal/simulation/engine"
	"github.com/fairlead-io/fairlead/internal/simulation/schedule"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// racer has goroutines that write at the same time.
func racer(ctx context.Context, cfg *rest.Config) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	maps := client.CoreV1().ConfigMaps("default")
	done := make(chan error)
	for _, name := range []string{"a", "b", "c", "d"} {
		go func() {
			done <- retry.RetryOnConflict(wait.Backoff{Steps: 10, Duration: 10 * time.Millisecond}, func() error {
				shared, err := maps.Get(ctx, "shared", metav1.GetOptions{})
				if err != nil {
					return err
				}
				if shared.Data == nil {
					shared.Data = map[string]string{}
				}
				shared.Data[name] = strings.Join([]string{"after", shared.Data["last"]}, " ")
				shared.Data["last"] = name
				_, err = maps.Update(ctx, shared, metav1.UpdateOptions{})
				return err
			})
		}()
	}
	for range 4 {
		err = errors.Join(err, <-done)
	}
	if ctx.Err() != nil {
		return nil
	}
	if err == nil {
		<-ctx.Done()
	}
	return err
}

// The same seed leads to the same run, whatever order the Go scheduler chooses. Another seed leads to another order.
func TestSameSeedSameRun(t *testing.T) {
	setup := Setup{Start: func(ctx context.Context, cfg *rest.Config) error {
		t := time.NewTimer(time.Second) // after the first step
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
		return racer(ctx, cfg)
	}, Steps: []schedule.Step{{Name: "create", Play: func(ctx context.Context, r *schedule.Run) error {
		client, err := kubernetes.NewForConfig(r.Config())
		if err != nil {
			return err
		}
		shared := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "shared"}}
		_, err = client.CoreV1().ConfigMaps("default").Create(ctx, shared, metav1.CreateOptions{})
		return err
	}}}}
	play := func(seed uint64) (out *engine.Outcome) {
		synctest.Test(t, func(t *testing.T) {
			var err error
			if out, err = Play(setup, engine.Plan{Seed: seed}, nil); err != nil || len(out.Exits) > 0 || !out.Quiet {
				t.Errorf("the outcome is %+v, error %v", out, err)
			}
		})
		return out
	}
	orders := map[string]bool{}
	for seed := range uint64(5) {
		first := play(seed)
		for range 5 {
			if diff := cmp.Diff(first, play(seed)); diff != "" {
				t.Fatalf("seed %d leads to different runs:\n%s", seed, diff)
			}
		}
		orders[engine.Hash(first.End["configmaps/default/shared"][0])] = true
	}
	if len(orders) < 2 {
		t.Error("all seeds lead to the same order")
	}
}

// An error that the subject only logs costs it no time, even after an error in an earlier bubble at a later time.
func TestErrorsCostNoTime(t *testing.T) {
	setup := Setup{Start: func(ctx context.Context, cfg *rest.Config) error {
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return err
		}
		utilruntime.HandleErrorWithContext(ctx, errors.New("an example"), "cannot do something")
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, cm, metav1.CreateOptions{}); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}}
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			out, err := Play(setup, engine.Plan{Seed: 1}, nil)
			if err != nil || len(out.End["configmaps/default/a"]) != 1 {
				t.Errorf("the outcome is %+v, error %v", out, err)
			}
		})
	}
}
