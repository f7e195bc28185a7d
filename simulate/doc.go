// Package simulate finds the bugs of a Kubernetes controller that show only when something fails: a crash between two
// writes, a watch that is late, an answer that is lost. It runs any controller that a Go function can start, unchanged.
// No cluster is needed.
//
//	func TestFaults(t *testing.T) {
//		simulate.Test(t, simulate.Subject{
//			Start: func(ctx context.Context, cfg *rest.Config) error { … return mgr.Start(ctx) },
//			CRDs:  "config/crd/bases",
//		},
//			simulate.Apply("config/samples/web.yaml"),
//			simulate.AwaitCondition("webpages/web", "Ready"),
//			simulate.Delete("webpages/web"),
//			simulate.Gone("webpages/web"),
//		)
//	}
package simulate
