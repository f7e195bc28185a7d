// Package clustertest provides a real control plane to tests. All tests share one control plane if they are run by
//
//	fairlead up --temporary -- go test ./...
//
// Otherwise each test binary starts its own when a test first needs it.
//
//	var env clustertest.Env
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(env.Main(m)) }
//
//	func TestCreate(t *testing.T) {
//		client := kubernetes.NewForConfigOrDie(env.Config(t))
//		ns := env.Namespace(t)
//		…
//	}
//
// InstallCRDs installs CustomResourceDefinitions. It may be called repeatedly:
//
//	env.InstallCRDs(t, clustertest.CRDFiles("config/crd/bases"))
//
// [Run] runs a program, and [Eventually] waits for a state. [Env.Apply] applies manifests. [RoundTrip] tests
// conversions.
//
// Tests must not disrupt a shared control plane. Their objects must be in their own namespace or have unique names. A
// test that stops, pauses or compacts servers starts its own control plane with [Start].
//
// A killed test binary leaves no processes: the servers end with it, and the next temporary control plane removes its
// directory.
package clustertest

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/connrotation"

	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/internal/testlimit"
)

// EnvVar names the environment variable with the directory of a running control plane for tests.
const EnvVar = "FAIRLEAD_TEST_CLUSTER"

// Env is the control plane of one test binary. The zero value is ready for use. It is safe for concurrent use and must
// not be copied.
type Env struct {
	// Options configure the control plane that is started if none is shared. Dir must be empty. With ControllerManager or
	// Kubelet one is always started: a shared control plane may lack them.
	Options cluster.Options

	once   sync.Once
	own    *cluster.Cluster // nil if it is shared
	config *rest.Config
	// The transport of all clients of Config. A reference to it keeps it shared, since client-go drops unreferenced
	// transports.
	transport http.RoundTripper
	conns     *connrotation.Dialer // of the transport; nil if client-go does not use an http.Transport
	err       error
}

// Runner is the interface that [testing.M] implements and goleak.VerifyTestMain accepts.
type Runner interface{ Run() int }

// Main returns a Runner that runs m and then stops the control plane, if the tests started one.
func (e *Env) Main(m Runner) Runner { return runner{e, m} }

type runner struct {
	env   *Env
	tests Runner
}

func (r runner) Run() int {
	defer r.env.stop()
	return r.tests.Run()
}

func (e *Env) stop() {
	e.once.Do(func() { e.err = cluster.ErrStopped })
	if e.own != nil {
		e.own.Stop()
		return
	}
	// A shared control plane does not close the connections.
	if e.conns != nil {
		e.conns.CloseAll() // an HTTP/2 connection is not idle at once when its last stream has ended
	}
	if e.transport != nil {
		utilnet.CloseIdleConnectionsFor(e.transport)
	}
}

// open makes the transport that the clients share, and tracks its connections.
func (e *Env) open() (err error) {
	if e.transport, err = rest.TransportFor(e.config); err != nil {
		return err
	}
	rt := e.transport
	for w, ok := rt.(utilnet.RoundTripperWrapper); ok; w, ok = rt.(utilnet.RoundTripperWrapper) {
		rt = w.WrappedRoundTripper()
	}
	if t, ok := rt.(*http.Transport); ok {
		e.conns = connrotation.NewDialer(t.DialContext)
		t.DialContext = e.conns.DialContext
	}
	return nil
}

// Config returns a client configuration with administrator rights; the caller owns it. The test fails if there is no
// control plane.
func (e *Env) Config(t testing.TB) *rest.Config {
	t.Helper()
	e.once.Do(func() {
		if e.own, e.config, e.err = connect(e.Options); e.err == nil {
			e.err = e.open()
		}
	})
	if e.err != nil {
		t.Fatalf("no control plane: %v", e.err)
	}
	return rest.CopyConfig(e.config)
}

// Namespace creates a namespace for the test and returns its name. The namespace is never deleted: without
// cluster.Options.ControllerManager no controller could empty it.
func (e *Env) Namespace(t testing.TB) string {
	t.Helper()
	return Namespace(t, e.Config(t))
}

func connect(o cluster.Options) (*cluster.Cluster, *rest.Config, error) {
	if dir := os.Getenv(EnvVar); dir != "" && !o.ControllerManager && !o.Kubelet {
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", EnvVar, err)
		}
		config.QPS = -1
		return nil, config, nil
	}
	o = withDefaults(o)
	// The context of the first test is not used, since the control plane outlives that test. Start bounds its own time.
	c, err := cluster.Start(context.Background(), o)
	if err != nil {
		return nil, nil, err
	}
	return c, c.Config(), nil
}

// Start starts a temporary control plane for the test and stops it at the end of the test.
func Start(t testing.TB, o cluster.Options) *cluster.Cluster {
	t.Helper()
	c, err := cluster.Start(t.Context(), withDefaults(o))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c
}

// withDefaults sets defaults. A busy machine may need more than a minute to start a server.
func withDefaults(o cluster.Options) cluster.Options {
	if o.Progress == nil {
		o.Progress = os.Stderr
	}
	o.StartTimeout = cmp.Or(o.StartTimeout, testlimit.Wait)
	return o
}

// Namespace creates a namespace for the test, named after it, and returns its name.
func Namespace(t testing.TB, config *rest.Config) string {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
	defer cancel()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix(t.Name())}}
	ns, err = client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("cannot create namespace: %v", err)
	}
	return ns.Name
}

// prefix turns a test's name into a prefix of a DNS label.
func prefix(test string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		default:
			return '-'
		}
	}, strings.TrimPrefix(test, "Test"))
	if len(name) > 40 {
		name = name[:40]
	}
	return "t-" + strings.Trim(name, "-") + "-"
}
