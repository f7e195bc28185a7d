package fairlead_test

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

func gogc() uint64 {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// It sets what belongs to the process, so no other test runs beside it.
func TestHeapFloor(t *testing.T) {
	server, err := apiserver.New(apiserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for name, tc := range map[string]struct {
		reason string
		base   int
		floor  int64
		raised bool
	}{
		"raised": {"a small heap may grow to the floor", 100, 1 << 40, true},
		"large":  {"the heap is larger anyway", 100, 1 << 10, false},
		"off":    {"who collects by GOMEMLIMIT alone goes on", -1, 1 << 40, false},
		"none":   {"nothing is done that was not asked for", 100, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			defer debug.SetGCPercent(debug.SetGCPercent(tc.base))
			before := gogc()
			rt := fairlead.New(server.Config(), fairlead.WithHeapFloor(tc.floor))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			during, collections := before, 0
			rt.Add("look", func(ctx context.Context) error {
				for ; collections < 5; collections++ { // also what later collections set
					runtime.GC()
				}
				during = gogc()
				cancel()
				return nil
			})
			if err := rt.Run(ctx); err != nil {
				t.Fatal(err)
			}
			if raised := during != before; raised != tc.raised || raised && during < 1000 {
				t.Errorf("%s: GOGC was %d, before %d", tc.reason, during, before)
			}
			runtime.GC()
			runtime.GC()
			if after := gogc(); after != before {
				t.Errorf("%s: GOGC is %d at the end, before %d", tc.reason, after, before)
			}
		})
	}
}
