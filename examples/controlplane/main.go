// Command controlplane starts a temporary control plane, stores an object in it and reads it back. It shows how to
// test against a real API server without installing one.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/cluster"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, os.Stderr)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out, progress io.Writer) error {
	c, err := cluster.Start(ctx, cluster.Options{Progress: progress})
	if err != nil {
		return err
	}
	defer c.Stop()

	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	maps := client.CoreV1().ConfigMaps("default")
	colours := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "colours"},
		Data:       map[string]string{"sea": "blue"},
	}
	if _, err := maps.Create(ctx, colours, metav1.CreateOptions{}); err != nil {
		return err
	}
	stored, err := maps.Get(ctx, "colours", metav1.GetOptions{})
	if err != nil {
		return err
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "Kubernetes %s keeps the sea %s\n", version.GitVersion, stored.Data["sea"])
	return err
}
