package bench_test

import (
	"os"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/cluster"
)

// BenchmarkControlPlane is the time to start a control plane until its first response, and to stop it.
func BenchmarkControlPlane(b *testing.B) {
	// Not measured: the one-time build.
	binaries, err := cluster.Build(b.Context(), cluster.BuildOptions{Progress: os.Stderr})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		c, err := cluster.Start(b.Context(), cluster.Options{Binaries: binaries})
		if err != nil {
			b.Fatal(err)
		}
		client, err := kubernetes.NewForConfig(c.Config())
		if err == nil {
			_, err = client.Discovery().ServerVersion()
		}
		c.Stop()
		if err != nil {
			b.Fatal(err)
		}
	}
}
