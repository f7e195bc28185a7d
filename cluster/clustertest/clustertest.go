// Package clustertest gives tests a real control plane: one for a whole test run when it is run by
//
//	fairlead up --temporary -- go test ./...
//
// (which is what make test does), else one for each test binary, started when a test first asks for it.
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
// CustomResourceDefinitions are installed, once or again, by
//
//	env.InstallCRDs(t, clustertest.CRDFiles("config/crd/bases"))
//
// A shared control plane must not be broken, and all that a test makes in it belongs into its own namespace or gets a
// name of its own. Tests that stop, pause or compact servers start one of their own with [Start].
//
// Nothing outlives a test binary that is killed: the servers die with it, and the next temporary control plane removes
// the directory.
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

	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/internal/testlimit"
)

// EnvVar names the environment variable with the directory of a control plane that is there for tests and runs already.
const EnvVar = "FAIRLEAD_TEST_CLUSTER"

// Env is the control plane of one test binary. The zero value is ready; it is safe for concurrent use. It must not be
// copied.
type Env struct {
	// Options of the control plane that is started when none is shared. Dir must be empty.
	Options cluster.Options

	once   sync.Once
	own    *cluster.Cluster // nil when it is shared
	config *rest.Config
	// the one of all clients of Config, held so that they do share it: client-go forgets what nobody holds
	transport http.RoundTripper
	err       error
}

// Runner is what [testing.M] and goleak.VerifyTestMain agree on.
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
	if e.transport != nil { // the control plane is shared: it does not end our connections for us
		utilnet.CloseIdleConnectionsFor(e.transport)
	}
}

// Config returns a configuration for an administrator; the caller owns it. The test fails when there is no control
// plane.
func (e *Env) Config(t testing.TB) *rest.Config {
	t.Helper()
	e.once.Do(func() {
		if e.own, e.config, e.err = connect(e.Options); e.err == nil {
			e.transport, e.err = rest.TransportFor(e.config)
		}
	})
	if e.err != nil {
		t.Fatalf("no control plane: %v", e.err)
	}
	return rest.CopyConfig(e.config)
}

// Namespace makes a namespace for the test and returns its name. It stays: nothing in this control plane could empty
// it.
func (e *Env) Namespace(t testing.TB) string {
	t.Helper()
	return Namespace(t, e.Config(t))
}

func connect(o cluster.Options) (*cluster.Cluster, *rest.Config, error) {
	if dir := os.Getenv(EnvVar); dir != "" {
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", EnvVar, err)
		}
		config.QPS = -1
		return nil, config, nil
	}
	o = withDefaults(o)
	// Not the first test's context: the control plane outlives that test. Start bounds its own time.
	c, err := cluster.Start(context.Background(), o)
	if err != nil {
		return nil, nil, err
	}
	return c, c.Config(), nil
}

// Start starts a temporary control plane that belongs to the test, and stops it when the test ends.
func Start(t testing.TB, o cluster.Options) *cluster.Cluster {
	t.Helper()
	c, err := cluster.Start(t.Context(), withDefaults(o))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c
}

// withDefaults sets what o leaves open. A busy machine may need longer than a minute to start a server.
func withDefaults(o cluster.Options) cluster.Options {
	if o.Progress == nil {
		o.Progress = cluster.ProgressTo(os.Stderr, 0)
	}
	o.StartTimeout = cmp.Or(o.StartTimeout, testlimit.Wait)
	return o
}

// Namespace makes a namespace for the test, named after it, and returns its name.
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

// prefix turns a test's name into the beginning of a DNS label.
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
