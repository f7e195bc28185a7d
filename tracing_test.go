package fairlead_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/tracing/spans"
	"github.com/fairlead-io/fairlead/reconcile"
)

// With WithTracerProvider, the span of a request is below its reconciliation or step. That of a step is below its
// fiber, and that of a fiber below its start. A watch, which may last for ever, has a span for its initial events.
func TestOneTracerProvider(t *testing.T) {
	t.Parallel()
	for _, joined := range []bool{false, true} {
		bubble(t, func(t *testing.T, s *apiserver.Server) {
			put(t, s, "x")
			made := spans.New()
			rt := fairlead.New(s.Config(), fairlead.WithTracerProvider(made))
			c := rt.Host
			if joined {
				c = rt.Join("east", s.Config())
			}
			fl := flow.New("up", flow.Step("write", func(ctx context.Context, f *flow.Fiber[corev1.ConfigMap]) flow.Next {
				err := client.Modify(ctx, c.Client(), f.Packet, func(m *corev1.ConfigMap) error {
					m.Data = map[string]string{"by": "the flow"}
					return nil
				})
				if err != nil {
					return f.Fail(err)
				}
				return f.Next()
			}))
			reconcile.New(c, "maps", reconcile.Func[corev1.ConfigMap](
				func(ctx context.Context, m *corev1.ConfigMap) (reconcile.Result, error) {
					_, err := fl.Start(ctx, c.Engine(), m, flow.StartOptions{Key: m.Name, Mode: flow.Coalesce})
					return reconcile.Done, err
				}))
			r := run(rt)
			synctest.Wait()
			time.Sleep(time.Second)
			if err := r.end(); err != nil {
				t.Error(err)
			}
			for child, parent := range map[string]string{
				"up": "reconcile maps", "write": "up", "patch configmaps": "write",
			} {
				below, above := made.Named(child), made.Named(parent)
				if len(below) == 0 || len(above) == 0 || !spans.IsChild(below[0], above[0]) {
					t.Errorf("joined %t: %s is not below %s, of %v", joined, child, parent, made.Names())
				}
			}
			if of := made.Named("list configmaps"); len(of) != 1 || of[0].Parent().IsValid() ||
				spans.Value(of[0], "source.initial_events") != "true" || of[0].EndTime().Sub(of[0].StartTime()) >= time.Second {
				t.Errorf("joined %t: %d lists, of %v", joined, len(of), made.Names())
			}
		})
	}
}
