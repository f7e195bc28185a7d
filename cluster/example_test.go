package cluster_test

import (
	"context"
	"fmt"
	"log"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/cluster"
)

func ExampleStart() {
	ctx := context.Background()
	// Without a Dir the control plane is temporary. The first start on a machine builds it and shows the progress.
	c, err := cluster.Start(ctx, cluster.Options{Progress: os.Stderr})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Stop()

	client := kubernetes.NewForConfigOrDie(c.Config())
	ns, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
	if err != nil {
		log.Print(err)
		return
	}
	fmt.Println(ns.Name, ns.Status.Phase)
}
