package main

import (
	"context"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/simulate"
)

// Whatever fails, a page gets its children, follows its text, and leaves nothing behind.
func TestFaults(t *testing.T) {
	simulate.Test(t, simulate.Subject{
		Start: func(ctx context.Context, cfg *rest.Config) error {
			rt, err := newOperator(cfg)
			if err != nil {
				return err
			}
			return rt.Run(ctx)
		},
		CRDs: "webpages.yaml",
	},
		simulate.Apply("testdata/page.yaml"),
		simulate.AwaitCondition("webpages/hello", "Ready"),
		simulate.Patch("webpages/hello", `{"spec":{"html":"<p>bye</p>","exposed":false}}`),
		simulate.AwaitCondition("webpages/hello", "Ready"),
		simulate.Delete("webpages/hello"),
		simulate.Gone("webpages/hello"),
		simulate.Schedules(150),
	)
}
