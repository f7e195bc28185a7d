package fairlead_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/observe"
)

// The watch of a source ends the documented time after its last observer is removed.
func TestWithLinger(t *testing.T) {
	t.Parallel()
	for reason, tc := range map[string]struct {
		opts []fairlead.Option
		want time.Duration
	}{
		"the default":    {nil, 30 * time.Second},
		"the zero value": {[]fairlead.Option{fairlead.WithLinger(0)}, 30 * time.Second},
		"longer":         {[]fairlead.Option{fairlead.WithLinger(time.Minute)}, time.Minute},
		"not at all":     {[]fairlead.Option{fairlead.WithLinger(-1)}, 0},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, s *apiserver.Server) {
				rt := fairlead.New(s.Config(), tc.opts...)
				observe.Source[corev1.ConfigMap](rt, Maps)
				o := observe.On(rt, Maps, func(context.Context, observe.Event[corev1.ConfigMap]) error { return nil })
				r := run(rt)
				synctest.Wait()
				open := func() int { return s.Log().Open(apiserver.Match{Verb: "watch", Resource: "configmaps"}) }
				o.Remove()
				if tc.want > 0 {
					<-time.After(tc.want - time.Millisecond)
					synctest.Wait()
					if open() != 1 {
						t.Error("the source is no longer watched")
					}
				}
				<-time.After(2 * time.Millisecond)
				synctest.Wait()
				if open() != 0 {
					t.Errorf("the source is still watched after %v", tc.want)
				}
				if err := r.end(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
