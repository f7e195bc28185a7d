package main

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/examples/database/server"
	"github.com/fairlead-io/fairlead/simulate"
)

// Whatever fails, at the API server or at the server of databases, a Database has one database of its size, and leaves
// none behind.
func TestFaults(t *testing.T) {
	var databases *server.Server // of the schedule in progress: a process plays one after the other
	sized := func(sizes ...int) simulate.Part {
		return simulate.Await(func(simulate.World) error {
			var have []int
			for _, d := range databases.List() {
				have = append(have, d.SizeGi)
			}
			if fmt.Sprint(have) != fmt.Sprint(sizes) {
				return fmt.Errorf("the server has databases of %d GiB", have)
			}
			return nil
		})
	}
	simulate.Test(t, simulate.Subject{
		Start: func(ctx context.Context, cfg *rest.Config) error {
			rt, err := newOperator(cfg, &provider{"http://databases", simulate.Client(ctx)}, time.Minute, nil)
			if err != nil {
				return err
			}
			return rt.Run(ctx)
		},
		CRDs: "databases.yaml",
	},
		simulate.External("databases", func() http.Handler {
			databases = server.New()
			return databases.Handler()
		}),
		simulate.Apply("sample.yaml"),
		simulate.AwaitCondition("databases/orders", "Ready"),
		sized(1),
		simulate.Patch("databases/orders", `{"spec":{"sizeGi":2}}`),
		sized(2),
		simulate.Delete("databases/orders"),
		simulate.Gone("databases/orders"),
		sized(),
		simulate.Schedules(100),
	)
}
