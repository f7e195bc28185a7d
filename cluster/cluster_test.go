package cluster_test

import (
	"context"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/cluster"
)

func TestSmoke(t *testing.T) {
	begin := time.Now()
	c, err := cluster.Start(t.Context(), cluster.Options{Progress: cluster.ProgressTo(os.Stderr, 0)})
	if err != nil {
		t.Fatal(err)
	}
	t.Log("start", time.Since(begin))
	k := kubernetes.NewForConfigOrDie(c.Config())
	v, err := k.Discovery().ServerVersion()
	t.Log(v, err)
	ns, err := k.CoreV1().Namespaces().List(context.Background(), metav1.ListOptions{})
	t.Log(len(ns.Items), err)
	begin = time.Now()
	rv, err := c.Compact(t.Context())
	t.Log("compact", rv, err, time.Since(begin))
	begin = time.Now()
	t.Log(c.RotateServingCertificate(t.Context()), time.Since(begin))
	begin = time.Now()
	t.Log(c.StopAPIServer(t.Context()), time.Since(begin))
	begin = time.Now()
	t.Log(c.StartAPIServer(t.Context()), time.Since(begin))
	b, _ := os.ReadFile(c.Log("kube-apiserver"))
	os.WriteFile("/tmp/cpbin/api.log", b, 0o600)
	b, _ = os.ReadFile(c.Log("etcd"))
	os.WriteFile("/tmp/cpbin/etcd.log", b, 0o600)
	begin = time.Now()
	c.Stop()
	t.Log("stop", time.Since(begin))
}
