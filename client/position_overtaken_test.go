package client_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/flow"
)

// overtaken runs fn with a cache that is behind. Another process has saved further positions, and the watch has not
// delivered them.
func overtaken(t *testing.T, before, after *flow.Position, fn func(c *cluster, live *task)) {
	t.Helper()
	positions(t, true, func(c *cluster, live *task) {
		other, err := client.New(client.Options{
			Call: c.calls, Mapper: c.client.Mapper(), Scheme: taskScheme(), FieldOwner: "other",
		})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		save := func(p *flow.Position) {
			if p == nil {
				return
			}
			if err := client.NewStatusPosition(other, live, atPosition).Save(c.ctx, "a/w", *p); err != nil {
				t.Fatal(err)
			}
		}
		save(before)
		synctest.Wait()
		hold := c.server.HoldEvents(apiserver.Match{Verb: "watch"})
		defer hold.Release()
		save(after)
		fn(c, live)
	})
}

// A fiber that has loaded an old position from the cache does not replace a newer one. It ends, and the next fiber
// resumes at the newer position before the watch delivers it.
func TestNewerPositionIsNotReplaced(t *testing.T) {
	t.Parallel()
	at := func(step, token string) *flow.Position {
		return &flow.Position{
			Flow: "working", Step: step, Token: token, Reason: "await", Attempt: 3,
			Checkpoint: []byte(`{"n": 1}`),
		}
	}
	failing := flow.New("working", flow.Step("first",
		flow.Do(func(context.Context, *work) error { return errors.New("no") })),
		flow.Step("wait", func(_ context.Context, f *flow.Fiber[work]) flow.Next { return f.Await(&f.Packet.gate) }))
	saving := flow.New("working", flow.Step("first",
		flow.Do(func(_ context.Context, w *work) error { w.note("first"); return nil }), flow.Save()),
		flow.Step("wait", func(_ context.Context, f *flow.Fiber[work]) flow.Next { return f.Await(&f.Packet.gate) }))
	for reason, tc := range map[string]struct {
		before, after *flow.Position
		flow          *flow.Flow[work]
		ran           []string
		failed        bool
	}{
		"no saved position, and the fiber parks": {nil, at("last", "other"), working, []string{"first", "wait"}, false},
		"an earlier step, and the fiber parks": {
			at("wait", "other"), at("last", "other"), working, []string{"wait"}, false,
		},
		"another run, and the fiber parks": {
			at("wait", "old"), at("wait", "other"), working, []string{"wait"}, false,
		},
		"no saved position, and the fiber fails":        {nil, at("last", "other"), failing, nil, true},
		"no saved position, and a step has to be saved": {nil, at("last", "other"), saving, nil, false},
	} {
		overtaken(t, tc.before, tc.after, func(c *cluster, live *task) {
			e := flow.NewEngine(flow.EngineOptions{})
			defer e.Close(context.Background())
			w := &work{pos: client.NewStatusPosition(c.client, live, atPosition)}
			h, err := tc.flow.Start(c.ctx, e, w, flow.StartOptions{Key: "a/w", Positions: w.pos})
			if err != nil {
				t.Fatal(err)
			}
			err = h.Wait(c.ctx)
			if got := errors.Is(err, flow.ErrOvertaken) && errors.Is(err, flow.ErrCancelled); got == tc.failed {
				t.Errorf("%s: the fiber ended with %v", reason, err)
			}
			if diff := cmp.Diff(tc.ran, w.ran); diff != "" {
				t.Errorf("%s: steps that ran (-want +got):\n%s", reason, diff)
			}
			if p := c.task().Status.Position; p == nil || p.Token != "other" || p.Step != tc.after.Step {
				t.Errorf("%s: the fiber has replaced the position by %+v", reason, p)
			}
			p, found, err := client.NewStatusPosition(c.client, live, atPosition).Load(c.ctx, "a/w")
			if err != nil || !found || p.Step != tc.after.Step || p.Token != "other" {
				t.Errorf("%s: the next fiber loads %+v, %v, %v", reason, p, found, err)
			}
		})
	}
}

// Without a newer position the check costs no request. Neither other changes of the object nor the server's encoding of
// the position matter.
func TestSaveIsOnePatch(t *testing.T) {
	t.Parallel()
	positions(t, true, func(c *cluster, live *task) {
		saved := flow.Position{Flow: "working", Step: "wait", Token: "t", Checkpoint: []byte(`{"b": 1,  "a": [1, 2]}`)}
		if err := client.NewStatusPosition(c.client, live, atPosition).Save(c.ctx, "a/w", saved); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		gets, patches := c.requests("get"), c.requests("patch")
		pos := client.NewStatusPosition(c.client, live, atPosition)
		if p, found, err := pos.Load(c.ctx, "a/w"); err != nil || !found || p.Step != "wait" {
			t.Fatalf("%+v, %v, %v", p, found, err)
		}
		for _, step := range []string{"last", "wait", "last"} {
			if err := pos.Save(c.ctx, "a/w", flow.Position{Flow: "working", Step: step, Token: "t"}); err != nil {
				t.Fatal(err)
			}
		}
		if g, p := c.requests("get")-gets, c.requests("patch")-patches; g != 0 || p != 3 {
			t.Errorf("%d reads and %d patches, want 3 patches", g, p)
		}
	})
}

// A save whose response was lost counts as the fiber's own.
func TestSaveWithALostResponse(t *testing.T) {
	t.Parallel()
	positions(t, true, func(c *cluster, live *task) {
		pos := client.NewStatusPosition(c.client, live, atPosition)
		if _, _, err := pos.Load(c.ctx, "a/w"); err != nil {
			t.Fatal(err)
		}
		hold := c.server.HoldEvents(apiserver.Match{Verb: "watch"})
		defer hold.Release()
		lost := c.server.On(apiserver.Match{Verb: "patch"}, apiserver.Drop())
		if err := pos.Save(c.ctx, "a/w", flow.Position{Step: "one", Token: "t"}); err == nil {
			t.Fatal("the response was not lost")
		}
		lost.Off()
		// The save was executed all the same.
		u := widget("w")
		u.SetUID(live.UID)
		u.Object["status"] = map[string]any{"position": map[string]any{
			"flow": "", "step": "one", "token": "t", "begun": "0001-01-01T00:00:00Z", "started": "0001-01-01T00:00:00Z",
		}}
		c.put(u)
		if err := pos.Save(c.ctx, "a/w", flow.Position{Step: "two", Token: "t"}); err != nil {
			t.Errorf("the next save: %v", err)
		}
		if p := c.task().Status.Position; p == nil || p.Step != "two" {
			t.Errorf("the stored position is %+v", p)
		}
	})
}

// A removed status is not a newer position.
func TestRemovedPositionIsSavedAgain(t *testing.T) {
	t.Parallel()
	positions(t, true, func(c *cluster, live *task) {
		if err := client.NewStatusPosition(c.client, live, atPosition).Save(c.ctx, "a/w",
			flow.Position{Step: "one", Token: "t"}); err != nil {
			t.Fatal(err)
		}
		pos := client.NewStatusPosition(c.client, live, atPosition)
		if _, found, err := pos.Load(c.ctx, "a/w"); err != nil || !found {
			t.Fatal(found, err)
		}
		u := widget("w")
		u.SetUID(live.UID)
		unstructured.RemoveNestedField(u.Object, "status")
		c.put(u)
		if err := pos.Save(c.ctx, "a/w", flow.Position{Step: "two", Token: "t"}); err != nil {
			t.Error(err)
		}
	})
}
