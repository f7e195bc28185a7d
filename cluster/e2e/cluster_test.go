package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/internal/testlimit"
)

func TestTemporary(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Options{
		APIServerFlags: []string{"--max-requests-inflight=123"},
		FeatureGates:   map[string]bool{"CBORServingAndStorage": true},
	})
	t.Run("KubeconfigTrustsOnlyThisServer", func(t *testing.T) { testKubeconfig(t, c) })
	t.Run("FlagsAndGates", func(t *testing.T) { testFlags(t, c) })
	core := client(t, c.Config()).CoreV1()
	if ns, err := core.Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Error(err)
	} else if ns.Status.Phase != corev1.NamespaceActive {
		t.Errorf("namespace default is %s, want Active", ns.Status.Phase)
	}
	maps := core.ConfigMaps("default")
	if _, err := maps.Create(t.Context(), configMap("a"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.Start(t.Context(), cluster.Options{Dir: c.Dir()}); !errors.Is(err, cluster.ErrInUse) {
		t.Errorf("second Start on one directory: got %v, want ErrInUse", err)
	} else if pid := strconv.Itoa(os.Getpid()); !strings.Contains(err.Error(), pid) {
		t.Errorf("error %q does not name the process %s", err, pid)
	}

	for _, file := range []string{"kubeconfig", "pki/token", "pki/tokens.csv", "pki/ca.key", "pki/apiserver.key"} {
		info, err := os.Stat(filepath.Join(c.Dir(), file))
		if err != nil {
			t.Error(err)
		} else if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %o, want 600", file, info.Mode().Perm())
		}
	}

	c.Stop()
	c.Stop() // a second call does nothing
	if err := c.Err(); err != nil {
		t.Errorf("Err after Stop: %v", err)
	}
	if _, err := os.Stat(c.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("directory after Stop: got %v, want none", err)
	}
	if err := c.StartAPIServer(t.Context()); !errors.Is(err, cluster.ErrStopped) {
		t.Errorf("StartAPIServer after Stop: got %v, want ErrStopped", err)
	}
}

func testKubeconfig(t *testing.T, c *cluster.Cluster) {
	config, err := clientcmd.BuildConfigFromFlags("", c.KubeconfigPath())
	if err != nil {
		t.Fatal(err)
	}
	if config.Insecure || len(config.CAData) == 0 {
		t.Error("kubeconfig does not verify the server's certificate")
	}
	if _, err := client(t, config).Discovery().ServerVersion(); err != nil {
		t.Errorf("with the kubeconfig: %v", err)
	}

	tests := map[string]struct {
		reason string
		change func(*rest.Config)
		want   func(error) bool
	}{
		"OtherAuthority": {
			reason: "no system trusts the CA of the directory",
			change: func(c *rest.Config) { c.CAData = nil },
			want:   func(err error) bool { return err != nil && strings.Contains(err.Error(), "unknown authority") },
		},
		"NoToken": {
			reason: "a request without a token is anonymous, and may read no namespace",
			change: func(c *rest.Config) { c.BearerToken = "" },
			want:   func(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) },
		},
		"WrongToken": {
			reason: "a token that is not in the file is refused",
			change: func(c *rest.Config) { c.BearerToken += "x" },
			want:   apierrors.IsUnauthorized,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			config := rest.CopyConfig(config)
			tc.change(config)
			_, err := client(t, config).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
			if !tc.want(err) {
				t.Errorf("%s: got %v", tc.reason, err)
			}
		})
	}
}

func testFlags(t *testing.T, c *cluster.Cluster) {
	raw, err := client(t, c.Config()).CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, gate := range []string{"ShardedListAndWatch", "CBORServingAndStorage"} {
		found := false
		for line := range strings.Lines(string(raw)) {
			found = found || strings.HasPrefix(line, "kubernetes_feature_enabled{") &&
				strings.Contains(line, `"`+gate+`"`) && strings.HasSuffix(strings.TrimSpace(line), " 1")
		}
		if !found {
			t.Errorf("feature gate %s is not on", gate)
		}
	}
}

func TestPersistent(t *testing.T) {
	t.Parallel()
	options := cluster.Options{
		Dir: filepath.Join(t.TempDir(), strings.Repeat("long", 30), "dir"), UnsafeNoFsync: true, StartTimeout: testlimit.Wait,
	}
	first, err := cluster.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Stop()
	maps := client(t, first.Config()).CoreV1().ConfigMaps("default")
	if _, err := maps.Create(t.Context(), configMap("kept"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(first.KubeconfigPath())
	if err != nil {
		t.Fatal(err)
	}
	ends(t, first.Stop)

	second, err := cluster.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Stop()
	after, err := os.ReadFile(second.KubeconfigPath())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(before), string(after)); diff != "" {
		t.Errorf("kubeconfig of the second start (-first +second):\n%s", diff)
	}
	maps = client(t, second.Config()).CoreV1().ConfigMaps("default")
	if _, err := maps.Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("object of the first start: %v", err)
	}
	second.Stop()

	holder, err := net.Listen("tcp", strings.TrimPrefix(first.Config().Host, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	third, err := cluster.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	defer third.Stop()
	if third.Config().Host == first.Config().Host {
		t.Error("the third start uses a port that is taken")
	}
	config, err := clientcmd.BuildConfigFromFlags("", third.KubeconfigPath())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client(t, config).Discovery().ServerVersion(); err != nil {
		t.Errorf("the kubeconfig lacks the new port: %v", err)
	}

	if err := third.PauseEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}
	ends(t, third.Stop)
}

func TestServerFailsToStart(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason  string
		options cluster.Options
		server  string
		log     string
	}{
		"APIServer": {
			reason:  "an unknown flag ends the server, and its log gives the cause",
			options: cluster.Options{APIServerFlags: []string{"--no-such-flag"}, StartTimeout: testlimit.Wait},
			server:  "kube-apiserver", log: "no-such-flag",
		},
		"Etcd": {
			reason:  "as for the API server",
			options: cluster.Options{EtcdFlags: []string{"--data-dir=/proc/nowhere"}, StartTimeout: testlimit.Wait},
			server:  "etcd", log: "/proc/nowhere",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := cluster.Start(t.Context(), tc.options)
			var failure *cluster.ServerError
			if !errors.Is(err, cluster.ErrServerExited) || !errors.As(err, &failure) {
				t.Fatalf("%s: got %v, want a ServerError with ErrServerExited", tc.reason, err)
			}
			if failure.Server != tc.server || !strings.Contains(failure.Log, tc.log) {
				t.Errorf("%s: got failure of %s with log %q, want of %s with %q",
					tc.reason, failure.Server, failure.Log, tc.server, tc.log)
			}
		})
	}
}

func TestPortTakenAfterItsChoice(t *testing.T) {
	t.Parallel()
	built, err := cluster.Build(t.Context(), cluster.BuildOptions{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	// A server that finds its port in use at its first start.
	dir := t.TempDir()
	script := fmt.Sprintf(`#!/bin/sh
[ -e %[1]s ] && exec %[2]s "$@"
touch %[1]s
echo "bind: address already in use"
exit 1
`, filepath.Join(dir, "started"), built.APIServer)
	built.APIServer = filepath.Join(dir, "server")
	if err := os.WriteFile(built.APIServer, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	c := clustertest.Start(t, cluster.Options{Binaries: built})
	if _, err := client(t, c.Config()).Discovery().ServerVersion(); err != nil {
		t.Error(err)
	}
	if err := c.Err(); err != nil {
		t.Errorf("the first attempt counts as a failure: %v", err)
	}
}

func TestStartIsBounded(t *testing.T) {
	t.Parallel()
	_, err := cluster.Start(t.Context(), cluster.Options{StartTimeout: time.Millisecond})
	if !errors.Is(err, cluster.ErrNotReady) {
		t.Errorf("with a deadline that cannot be met: got %v, want ErrNotReady", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	if _, err := cluster.Start(ctx, cluster.Options{}); !errors.Is(err, gone) {
		t.Errorf("with a cancelled context: got %v, want its cause", err)
	}
}

func TestServersDieWithTheirParent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.CommandContext(t.Context(), exe)
	parent.Env = append(os.Environ(), helperDir+"="+dir)
	parent.Stderr = os.Stderr
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var etcd, apiServer int
	if _, err := fmt.Fscanln(out, &etcd, &apiServer); err != nil {
		t.Fatalf("the helper does not report the processes: %v", err)
	}

	if err := parent.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	for _, pid := range []int{etcd, apiServer} {
		eventually(t, "process "+strconv.Itoa(pid)+" ends", func() bool { return !running(pid) })
	}

	c, err := cluster.Start(t.Context(), cluster.Options{
		Dir: filepath.Join(dir, "cluster"), UnsafeNoFsync: true, StartTimeout: testlimit.Wait,
	})
	if err != nil {
		t.Fatalf("start after the kill: %v", err)
	}
	c.Stop()
}

func client(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(transport) })
	return c
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}
