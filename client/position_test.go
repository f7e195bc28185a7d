package client_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/flow"
)

// task is a typed widget with a position in its status.
type task struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Status            taskStatus `json:"status,omitempty"`
}

type taskStatus struct {
	Phase    string         `json:"phase,omitempty"`
	Foreign  string         `json:"foreign,omitempty"`
	Position *flow.Position `json:"position,omitempty"`
}

func (t *task) DeepCopyObject() runtime.Object {
	out := &task{TypeMeta: t.TypeMeta, Status: t.Status}
	t.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status.Position = t.Status.Position.DeepCopy()
	return out
}

func taskScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypeWithName(apiserver.Widgets().GVK(), &task{})
	return s
}

func atPosition(t *task) **flow.Position { return &t.Status.Position }

func phase(p string) func(*task) error {
	return func(t *task) error { t.Status.Phase = p; return nil }
}

// work is the packet of the flows of these tests.
type work struct {
	pos  *client.StatusPosition[task, *task]
	ran  []string
	gate flow.Signal
}

func (w *work) note(step string) { w.ran = append(w.ran, step) }

var working = flow.New("working",
	flow.Step("first", func(_ context.Context, f *flow.Fiber[work]) flow.Next {
		f.Packet.note("first")
		f.Packet.pos.Set(phase("Working"))
		return f.Next()
	}),
	flow.Step("wait", func(_ context.Context, f *flow.Fiber[work]) flow.Next {
		f.Packet.note("wait")
		return f.Await(&f.Packet.gate)
	}),
	flow.Step("last", func(_ context.Context, f *flow.Fiber[work]) flow.Next {
		f.Packet.note("last")
		f.Packet.pos.Set(phase("Done"))
		return f.Next()
	}),
)

func positions(t *testing.T, watched bool, fn func(c *cluster, live *task)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := setup{options: client.Options{Scheme: taskScheme()}}
		if watched {
			s.watch = []string{"Widget"}
		}
		c := start(t.Context(), t, s)
		defer c.close()
		c.put(widget("w"))
		synctest.Wait()
		var live task
		if err := c.client.Get(t.Context(), key("w"), &live); err != nil {
			t.Fatal(err)
		}
		fn(c, &live)
	})
}

func (c *cluster) task() *task {
	c.t.Helper()
	var got task
	if err := c.client.Live().Get(c.ctx, key("w"), &got); err != nil {
		c.t.Fatal(err)
	}
	return &got
}

func TestPositionInTheStatusTakesOnePatchPerSave(t *testing.T) {
	t.Parallel()
	for _, watched := range []bool{true, false} {
		positions(t, watched, func(c *cluster, live *task) {
			e := flow.NewEngine(flow.EngineOptions{})
			defer e.Close(context.Background())
			w := &work{pos: client.NewStatusPosition(c.client, live, atPosition)}
			h, err := working.Start(c.ctx, e, w, flow.StartOptions{Key: "a/w", Positions: w.pos, Generation: 7})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			got := c.task()
			if p := got.Status.Position; p == nil || p.Step != "wait" || p.Generation != 7 || p.Reason != "await" ||
				got.Status.Phase != "Working" {
				t.Fatalf("watched %v, parked: %+v", watched, got.Status)
			}
			w.gate.Set()
			if err := h.Wait(c.ctx); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(taskStatus{Phase: "Done"}, c.task().Status); diff != "" {
				t.Errorf("watched %v, completed (-want +got):\n%s", watched, diff)
			}
			if n := c.requests("patch"); n != 2 {
				t.Errorf("watched %v: %d patches, want one for the park and one for the end", watched, n)
			}
		})
	}
}

func TestAFiberResumesFromTheStatus(t *testing.T) {
	t.Parallel()
	positions(t, true, func(c *cluster, live *task) {
		e := flow.NewEngine(flow.EngineOptions{})
		w := &work{pos: client.NewStatusPosition(c.client, live, atPosition)}
		if _, err := working.Start(c.ctx, e, w, flow.StartOptions{Key: "a/w", Positions: w.pos}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		token := c.task().Status.Position.Token
		if err := e.Close(c.ctx); err != nil {
			t.Fatal(err)
		}

		e = flow.NewEngine(flow.EngineOptions{})
		defer e.Close(context.Background())
		again := &work{pos: client.NewStatusPosition(c.client, live, atPosition)}
		h, err := working.Start(c.ctx, e, again, flow.StartOptions{Key: "a/w", Positions: again.pos})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := c.task().Status.Position; got.Token != token {
			t.Errorf("token %q, want that of the first run %q", got.Token, token)
		}
		again.gate.Set()
		if err := h.Wait(c.ctx); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"wait", "last"}, again.ran); diff != "" {
			t.Errorf("steps after the restart (-want +got):\n%s", diff)
		}
	})
}

func TestEndOfAPreemptedFiberIsSavedFirst(t *testing.T) {
	t.Parallel()
	positions(t, true, func(c *cluster, live *task) {
		e := flow.NewEngine(flow.EngineOptions{})
		defer e.Close(context.Background())
		w := &work{pos: client.NewStatusPosition(c.client, live, atPosition)}
		if _, err := working.Start(c.ctx, e, w, flow.StartOptions{Key: "a/w", Positions: w.pos}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		var found atomic.Pointer[taskStatus]
		next := flow.New("next", flow.Step("only", func(ctx context.Context, f *flow.Fiber[work]) flow.Next {
			got, err := client.Get[task](ctx, c.client, key("w"))
			if err != nil {
				return f.Fail(err)
			}
			found.Store(&got.Status)
			f.Packet.pos.Set(phase("Next"))
			return f.Next()
		}))
		second := &work{pos: client.NewStatusPosition(c.client, live, atPosition)}
		h, err := next.Start(c.ctx, e, second, flow.StartOptions{Key: "a/w", Positions: second.pos})
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Wait(c.ctx); err != nil {
			t.Fatal(err)
		}
		if p := found.Load().Position; p == nil || !p.Ended || p.Step != "wait" || !strings.Contains(p.Err, "preempted") {
			t.Errorf("the successor found %+v", p)
		}
		if diff := cmp.Diff(taskStatus{Phase: "Next"}, c.task().Status); diff != "" {
			t.Errorf("at the end (-want +got):\n%s", diff)
		}
	})
}

func TestASaveKeepsForeignChangesOfTheStatus(t *testing.T) {
	t.Parallel()
	positions(t, true, func(c *cluster, live *task) {
		pos := client.NewStatusPosition(c.client, live, atPosition)
		hold := c.server.HoldEvents(apiserver.Match{Resource: "widgets"})
		u := widget("w")
		u.Object["status"] = map[string]any{"foreign": "x"}
		u.SetUID(live.UID)
		c.put(u)
		pos.Set(phase("Working"))
		if err := pos.Save(c.ctx, "a/w", flow.Position{Step: "s", Token: "t"}); err != nil {
			t.Fatal(err)
		}
		hold.Release()
		got := c.task().Status
		if got.Foreign != "x" || got.Phase != "Working" || got.Position == nil {
			t.Errorf("got %+v", got)
		}
	})
}

func TestFailedSaveKeepsTheStatus(t *testing.T) {
	t.Parallel()
	positions(t, true, func(c *cluster, live *task) {
		pos := client.NewStatusPosition(c.client, live, atPosition)
		pos.Set(phase("One"))
		down := c.server.On(apiserver.Match{Verb: "patch"}, apiserver.Answer(apiserver.Failure(403)))
		if err := pos.Save(c.ctx, "a/w", flow.Position{Step: "s", Token: "t"}); err == nil {
			t.Fatal("no error")
		}
		down.Off()
		if err := pos.Flush(c.ctx); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(taskStatus{Phase: "One"}, c.task().Status); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		before := c.requests("patch")
		if err := pos.Flush(c.ctx); err != nil || c.requests("patch") != before {
			t.Errorf("an empty flush: %v, %d requests", err, c.requests("patch")-before)
		}
	})
}

func TestPositionsOfOtherObjects(t *testing.T) {
	t.Parallel()
	saved := flow.Position{Step: "s", Token: "t", Checkpoint: []byte(`{"n":1}`)}
	for _, tc := range []struct {
		reason string
		name   string
		uid    types.UID
		at     func(*task) **flow.Position
		loads  bool
		saves  func(error) bool
		clears bool
	}{
		{"the object", "w", "", atPosition, true, func(err error) bool { return err == nil }, true},
		{"another object of its name", "w", "other", atPosition, false, func(err error) bool {
			return errors.Is(err, client.ErrReplaced)
		}, true},
		{"a deleted object", "gone", "", atPosition, false, apierrors.IsNotFound, true},
		{
			"a field that the server does not keep", "w", "", func(*task) **flow.Position { return new(*flow.Position) }, false,
			func(err error) bool { return errors.Is(err, client.ErrNotKept) }, true,
		},
	} {
		positions(t, true, func(c *cluster, live *task) {
			if err := client.NewStatusPosition(c.client, live, atPosition).Save(c.ctx, "a/w", saved); err != nil {
				t.Fatal(err)
			}
			named := &task{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: tc.name, UID: tc.uid}}
			pos := client.NewStatusPosition(c.client, named, tc.at)
			got, found, err := pos.Load(c.ctx, "a/w")
			if err != nil || found != tc.loads {
				t.Errorf("%s: load found %v, %v", tc.reason, found, err)
			}
			if found {
				if diff := cmp.Diff(saved, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			}
			if err := pos.Save(c.ctx, "a/w", flow.Position{Step: "s2", Token: "t"}); !tc.saves(err) {
				t.Errorf("%s: save: %v", tc.reason, err)
			}
			if err := pos.Clear(c.ctx, "a/w"); (err == nil) != tc.clears {
				t.Errorf("%s: clear: %v", tc.reason, err)
			}
		})
	}
}

// The server may be down when a fiber ends. The end does not block, and the next start finds the last saved position.
func TestEndWhileTheServerIsDown(t *testing.T) {
	t.Parallel()
	positions(t, true, func(c *cluster, live *task) {
		e := flow.NewEngine(flow.EngineOptions{})
		defer e.Close(context.Background())
		w := &work{pos: client.NewStatusPosition(c.client, live, atPosition)}
		h, err := working.Start(c.ctx, e, w, flow.StartOptions{Key: "a/w", Positions: w.pos})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		c.server.Down()
		h.Cancel(errors.New("stop"))
		select {
		case <-h.Done():
		case <-time.After(time.Hour):
			t.Fatal("the fiber does not end")
		}
		if err := c.server.Up(); err != nil {
			t.Fatal(err)
		}
		if p := c.task().Status.Position; p == nil || p.Ended || p.Step != "wait" {
			t.Errorf("got %+v", p)
		}
	})
}

var _ flow.Positions = (*client.StatusPosition[task, *task])(nil)

// TestAPositionWithoutItsTraceIsKept: a schema may lack the field of the trace, which is optional.
func TestAPositionWithoutItsTraceIsKept(t *testing.T) {
	t.Parallel()
	positions(t, true, func(c *cluster, live *task) {
		pruned := func(o *task) **flow.Position { // the position as stored by a server without the field
			if o.Status.Position != nil {
				o.Status.Position.Trace = ""
			}
			return &o.Status.Position
		}
		pos := client.NewStatusPosition(c.client, live, pruned)
		const parent = "00-01000000000000000000000000000000-0200000000000000-01"
		if err := pos.Save(c.ctx, "a/w", flow.Position{Step: "s", Token: "t", Trace: parent}); err != nil {
			t.Errorf("without a trace: %v", err)
		}
		if err := client.NewStatusPosition(c.client, live, atPosition).Save(c.ctx, "a/w",
			flow.Position{Step: "s2", Token: "t", Trace: parent}); err != nil {
			t.Errorf("with a trace: %v", err)
		}
		if p := c.task().Status.Position; p == nil || p.Trace != parent {
			t.Errorf("the stored position is %+v", p)
		}
	})
}
