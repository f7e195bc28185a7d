package reconcile_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

// step is a change after a delay.
type step struct {
	after time.Duration
	kind  string
}

func steps(rt *rapid.T, name string, most int, kinds ...string) []step {
	out := make([]step, rapid.IntRange(0, most).Draw(rt, "number of "+name))
	for i := range out {
		out[i] = step{
			after: time.Duration(rapid.IntRange(0, 5).Draw(rt, fmt.Sprint(name, i, " after"))) * time.Millisecond,
			kind:  rapid.SampledFrom(kinds).Draw(rt, fmt.Sprint(name, i)),
		}
	}
	return out
}

// The last reconciliation has seen the last foreign change (C3), whatever the clients write and whatever faults the
// watch has. Then the controller is idle.
func TestNoForeignChangeIsSwallowed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		foreign := steps(rt, "foreign", 8, "spec", "spec", "label", "status", "hold", "hold", "release", "drop", "compact",
			"replace", "delete")
		var own [][]step // by call
		for i := range 4 {
			own = append(own, steps(rt, fmt.Sprint("own ", i, " "), 6, "status", "no-op", "no-op", "annotate", "refused"))
		}
		var failure string
		synctest.Test(t, func(t *testing.T) { failure = swallowed(t, foreign, own) })
		if failure != "" {
			rt.Fatal(failure)
		}
	})
}

func swallowed(t *testing.T, foreign []step, own [][]step) string {
	b := &bench{t: t, ctx: t.Context(), server: testbed.Server(t, apiserver.Options{})}
	defer b.server.Close()
	b.host = b.process()
	defer func() {
		if err := b.host.Stop(); err != nil {
			t.Errorf("the host failed: %v", err)
		}
	}()
	b.controller(func(ctx context.Context, n int, g *gateway) (reconcile.Result, error) {
		if n > len(own) {
			return reconcile.Done, nil
		}
		for _, s := range own[n-1] {
			<-time.After(s.after)
			var err error
			switch s.kind {
			case "status":
				err = b.countUp(ctx, g)
			case "no-op":
				err = b.client().Status().Patch(ctx, g, client.RawPatch(types.MergePatchType, []byte(`{"status":{"seen":7}}`)),
					client.Always())
			case "annotate":
				err = client.Modify(ctx, b.client(), g, func(g *gateway) error {
					metav1.SetMetaDataAnnotation(&g.ObjectMeta, "own", fmt.Sprint(n, time.Now().UnixNano()))
					return nil
				})
			case "refused":
				b.server.On(apiserver.Match{Verb: "patch", Times: 1}, apiserver.Answer(apiserver.Failure(422)))
				_ = b.countUp(ctx, g) // any result is fine
			}
			if err != nil {
				return reconcile.Retry(err)
			}
		}
		return reconcile.Done, nil
	})
	const seen = 7 // makes the no-op patch a no-op
	put := func(size int) { b.put("web", func(g *gateway) { g.Spec.Size, g.Status.Seen = size, seen }) }
	put(1)
	b.host.Start(b.ctx)
	var holds []*apiserver.Hold
	release := func() {
		for _, h := range holds {
			h.Release()
		}
		holds = nil
	}
	for i, s := range foreign {
		<-time.After(s.after)
		there := testbed.Stored(b.server, web) != nil
		switch {
		case s.kind == "hold":
			holds = append(holds, b.server.HoldEvents(apiserver.Match{Resource: "gateways"}))
		case s.kind == "release":
			release()
		case s.kind == "drop":
			b.server.DropConnections()
		case s.kind == "compact":
			b.server.Compact(0)
		case s.kind == "delete" && there:
			if err := b.server.Remove(testbed.Gateways, "a", "web"); err != nil {
				return err.Error()
			}
		case s.kind == "replace" && there:
			if err := b.server.Remove(testbed.Gateways, "a", "web"); err != nil {
				return err.Error()
			}
			put(100 + i)
		case !there:
			put(100 + i)
		case s.kind == "spec":
			b.change(size(int64(100 + i)))
		case s.kind == "label":
			b.change(label(fmt.Sprint(i)))
		case s.kind == "status":
			b.change(func(u *unstructured.Unstructured) {
				_ = unstructured.SetNestedField(u.Object, fmt.Sprint(i), "status", "note", "foreign")
			})
		}
	}
	release()
	testbed.Settle(30 * time.Minute)
	synctest.Wait()
	want := testbed.Stored(b.server, web)
	if n := b.count(); n > len(foreign)+3*len(own)+5 {
		return fmt.Sprintf("%d reconciliations", n)
	}
	if want == nil {
		return ""
	}
	got := b.last().obj
	if got.UID != want.UID || got.Spec.Size != want.Spec.Size || got.Labels["l"] != want.Labels["l"] ||
		got.Status.Note["foreign"] != want.Status.Note["foreign"] {
		return fmt.Sprintf(
			"the last of %d reconciliations saw size %d, labels %v, note %v of %s; the server has %d, %v, %v of %s", b.count(),
			got.Spec.Size, got.Labels, got.Status.Note, got.UID, want.Spec.Size, want.Labels, want.Status.Note, want.UID,
		)
	}
	return ""
}
