package e2e_test

import (
	"context"
	"crypto/tls"
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/internal/testlimit"
)

// TestDisrupt disturbs one control plane in several ways. Each of them repairs its damage.
func TestDisrupt(t *testing.T) {
	t.Parallel()
	servers, err := record(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := clustertest.Start(t, cluster.Options{Binaries: servers.binaries})
	for _, disruption := range []struct {
		name string
		test func(*testing.T, *cluster.Cluster)
	}{
		{"ObeysContext", testContext},
		{"PauseAPIServer", testPauseAPIServer},
		{"PauseEtcd", testPauseEtcd},
		{"RotateServingCertificate", testRotate},
		{"Compact", testCompact},
		{"KillAndStart", testKillAndStart},
		{"SnapshotAndRestore", testSnapshotAndRestore},
		{"UnexpectedExit", func(t *testing.T, c *cluster.Cluster) { testUnexpectedExit(t, c, servers) }},
	} {
		t.Run(disruption.name, func(t *testing.T) { disruption.test(t, c) })
	}
}

func testKillAndStart(t *testing.T, c *cluster.Cluster) {
	maps := client(t, c.Config()).CoreV1().ConfigMaps("default")
	if _, err := maps.Create(t.Context(), configMap("survivor"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	for name, end := range map[string]func(context.Context) error{"kill": c.KillAPIServer, "stop": c.StopAPIServer} {
		if err := end(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := maps.Get(t.Context(), "survivor", metav1.GetOptions{}); err == nil {
			t.Errorf("after %s, a request succeeds", name)
		}
		if err := c.RotateServingCertificate(t.Context()); err == nil {
			t.Errorf("after %s, the rotation succeeds without a server", name)
		}
		if err := c.Err(); err != nil {
			t.Errorf("%s counts as a failure: %v", name, err)
		}
		for range 2 { // the second call does nothing
			if err := c.StartAPIServer(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := maps.Get(t.Context(), "survivor", metav1.GetOptions{}); err != nil {
			t.Errorf("after %s and start: %v", name, err)
		}
	}
}

func testCompact(t *testing.T, c *cluster.Cluster) {
	maps := client(t, c.Config()).CoreV1().ConfigMaps("default")
	old, err := maps.Create(t.Context(), configMap("compacted"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(t.Context(), "compacted", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	at, err := c.Compact(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if created, _ := strconv.ParseInt(old.ResourceVersion, 10, 64); at <= created {
		t.Errorf("compacted at %d, want after the creation at %d", at, created)
	}
	if err := c.RestartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	exact := metav1.ListOptions{
		ResourceVersion:      old.ResourceVersion,
		ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	}
	if _, err := maps.List(t.Context(), exact); !apierrors.IsResourceExpired(err) {
		t.Errorf("list at a compacted version: got %v, want 410 Expired", err)
	}
}

func testPauseAPIServer(t *testing.T, c *cluster.Cluster) {
	maps := client(t, c.Config()).CoreV1().ConfigMaps("default")
	if err := c.PauseAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "reads fail while the API server is paused", func() bool { // the signal takes a moment
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err := maps.List(ctx, metav1.ListOptions{})
		return err != nil
	})
	if err := c.ResumeAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("read after it was resumed: %v", err)
	}
}

func testPauseEtcd(t *testing.T, c *cluster.Cluster) {
	maps := client(t, c.Config()).CoreV1().ConfigMaps("default")
	if err := c.PauseEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "writes fail while etcd is paused", func() bool { // the signal takes a moment
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		paused := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "paused-"}}
		_, err := maps.Create(ctx, paused, metav1.CreateOptions{})
		return err != nil
	})
	if err := c.ResumeEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Create(t.Context(), configMap("resumed"), metav1.CreateOptions{}); err != nil {
		t.Errorf("write after etcd was resumed: %v", err)
	}
}

func testSnapshotAndRestore(t *testing.T, c *cluster.Cluster) {
	maps := client(t, c.Config()).CoreV1().ConfigMaps("default")
	if _, err := maps.Create(t.Context(), configMap("before"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	snapshot := filepath.Join(t.TempDir(), "snapshot")
	if err := c.Snapshot(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	if err := c.Snapshot(t.Context(), snapshot); err == nil {
		t.Error("a second snapshot overwrites the first")
	}
	// The API server has lost its connection to etcd. Its writes succeed again with a new one.
	eventually(t, "write after the snapshot", func() bool {
		_, err := maps.Create(t.Context(), configMap("after"), metav1.CreateOptions{})
		return err == nil || apierrors.IsAlreadyExists(err)
	})
	for i := range 100 { // more than the servers themselves write at their start
		if _, err := maps.Create(t.Context(), configMap("after-"+strconv.Itoa(i)), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	later, err := c.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if err := c.Restore(t.Context(), filepath.Join(t.TempDir(), "missing")); err == nil {
		t.Error("Restore of a missing snapshot succeeds")
	}
	if err := c.Restore(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, item := range list.Items {
		names = append(names, item.Name)
	}
	all := strings.Join(names, " ")
	if !strings.Contains(all, "before") || strings.Contains(all, "after") {
		t.Errorf("after Restore there are %s, want the objects of the snapshot", all)
	}
	if version, _ := strconv.ParseInt(list.ResourceVersion, 10, 64); version >= later {
		t.Errorf("resource version %d after Restore, want less than %d", version, later)
	}
}

func testRotate(t *testing.T, c *cluster.Cluster) {
	before := serial(t, c)
	if err := c.RotateServingCertificate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := serial(t, c); after == before {
		t.Error("the same certificate is served after the rotation")
	}
	if _, err := client(t, c.Config()).Discovery().ServerVersion(); err != nil {
		t.Errorf("the configuration does not trust the new certificate: %v", err)
	}
}

func testContext(t *testing.T, c *cluster.Cluster) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.RestartAPIServer(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func testUnexpectedExit(t *testing.T, c *cluster.Cluster, servers recorded) {
	_, apiServer, err := servers.pids()
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(apiServer, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.Done():
	case <-time.After(testlimit.Wait):
		t.Fatal("Done is not closed after the end of kube-apiserver")
	}
	if err := c.Err(); !errors.Is(err, cluster.ErrServerExited) {
		t.Errorf("got %v, want ErrServerExited", err)
	}
}

func serial(t *testing.T, c *cluster.Cluster) string {
	t.Helper()
	address := strings.TrimPrefix(c.Config().Host, "https://")
	// Only reads the certificate. Another test checks whether it is trusted.
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}
