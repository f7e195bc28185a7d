package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
)

func inConfigMap(t *testing.T, watched bool, fn func(c *cluster, pos *client.ConfigMapPositions)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var s setup
		if watched {
			s.watch = []string{"ConfigMap"}
		}
		c := start(t.Context(), t, s)
		defer c.close()
		fn(c, client.NewConfigMapPositions(c.client, key("positions")))
	})
}

func (c *cluster) data() map[string]string {
	c.t.Helper()
	var cm corev1.ConfigMap
	if err := c.client.Live().Get(c.ctx, key("positions"), &cm); err != nil {
		c.t.Fatal(err)
	}
	return cm.Data
}

func TestFiberResumesFromTheConfigMap(t *testing.T) {
	t.Parallel()
	for _, watched := range []bool{true, false} {
		inConfigMap(t, watched, func(c *cluster, pos *client.ConfigMapPositions) {
			var ran []string
			var gate flow.Signal
			note := func(step string) flow.StepFunc[struct{}] {
				return func(_ context.Context, f *flow.Fiber[struct{}]) flow.Next {
					if ran = append(ran, step); step == "wait" {
						return f.Await(&gate)
					}
					return f.Next()
				}
			}
			fl := flow.New("working", flow.Step("first", note("first")), flow.Step("wait", note("wait")),
				flow.Step("last", note("last")))
			opt := flow.StartOptions{Key: "prod/orders", Positions: pos}
			e := flow.NewEngine(flow.EngineOptions{})
			if _, err := fl.Start(c.ctx, e, &struct{}{}, opt); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if data := c.data(); len(data) != 1 || !strings.Contains(data["prod_2forders"], `"step":"wait"`) {
				t.Errorf("data: %v", data)
			}
			if err := e.Close(c.ctx); err != nil {
				t.Fatal(err)
			}
			e = flow.NewEngine(flow.EngineOptions{})
			defer e.Close(context.Background())
			h, err := fl.Start(c.ctx, e, &struct{}{}, opt)
			if err != nil {
				t.Fatal(err)
			}
			gate.Set()
			if err := h.Wait(c.ctx); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"first", "wait", "wait", "last"}, ran); diff != "" {
				t.Errorf("steps that ran (-want +got):\n%s", diff)
			}
			if data := c.data(); len(data) != 0 {
				t.Errorf("left at the end: %v", data)
			}
		})
	}
}

func TestConfigMapOfManyPositions(t *testing.T) {
	t.Parallel()
	inConfigMap(t, true, func(c *cluster, pos *client.ConfigMapPositions) {
		const fibers = 40
		other := client.NewConfigMapPositions(c.client, key("positions")) // of another process
		name := func(i int) string {
			return []string{"a/b.c", "a.b/c", ".hidden", "ümläut", "under_score"}[i%5] + fmt.Sprint(i)
		}
		var wg sync.WaitGroup
		for i := range fibers {
			wg.Go(func() {
				by := pos
				if i%2 == 0 {
					by = other
				}
				if err := by.Save(c.ctx, name(i), flow.Position{Flow: "f", Step: fmt.Sprint("s", i)}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := len(c.data()); n != fibers {
			t.Errorf("%d positions are kept, want %d", n, fibers)
		}
		for i := range fibers {
			p, found, err := pos.Load(c.ctx, name(i))
			if err != nil || !found || p.Step != fmt.Sprint("s", i) {
				t.Errorf("%s: %+v, %v, %v", name(i), p, found, err)
			}
			if err := pos.Clear(c.ctx, name(i)); err != nil {
				t.Error(err)
			}
		}
		if _, found, err := pos.Load(c.ctx, name(0)); found || err != nil {
			t.Errorf("found after Clear: %v, %v", found, err)
		}
	})
}

func TestUnreadablePosition(t *testing.T) {
	t.Parallel()
	inConfigMap(t, true, func(c *cluster, pos *client.ConfigMapPositions) {
		if err := pos.Clear(c.ctx, "x"); err != nil {
			t.Errorf("there is no ConfigMap yet: %v", err)
		}
		if _, found, err := pos.Load(c.ctx, "x"); found || err != nil {
			t.Errorf("there is no ConfigMap yet: %v, %v", found, err)
		}
		c.put(foreign("positions", "x", "{"))
		synctest.Wait()
		if _, _, err := pos.Load(c.ctx, "x"); err == nil ||
			!strings.Contains(err.Error(), `position of "x" in ConfigMap a/positions`) {
			t.Errorf("error: %v", err)
		}
		stopped, cancel := context.WithCancelCause(c.ctx)
		ended := errors.New("over")
		cancel(ended)
		if err := pos.Save(stopped, "y", flow.Position{Flow: "f", Step: "s"}); !errors.Is(err, ended) &&
			!errors.Is(err, context.Canceled) {
			t.Errorf("error: %v", err)
		}
	})
}
