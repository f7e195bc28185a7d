package cluster

import (
	"context"
	"io"
	"log/slog"
	"time"

	"k8s.io/client-go/rest"
)

// Options configure a control plane. The zero value configures a temporary one.
type Options struct {
	// Dir contains all files: etcd's data, certificates, credentials, kubeconfig and logs. It is created if it is
	// missing. Empty means a temporary directory, which Stop removes, and implies UnsafeNoFsync.
	Dir string

	// CacheDir is the cache of the binaries; see [BuildOptions.CacheDir].
	CacheDir string

	// Binaries are existing binaries. Empty fields are built, once for all users of CacheDir.
	Binaries Binaries

	// ControllerManager also runs kube-controller-manager, without the controllers for nodes. Its controllers collect
	// dependents of deleted owners, empty namespaces under deletion, and reconcile Deployments, StatefulSets, Jobs and
	// the other workloads. Service accounts work as in a cluster: a pod needs one, and gets a token. The first build
	// of the binary takes about two minutes more.
	ControllerManager bool

	// Prepare, if set, is called once when kube-apiserver serves, before kube-controller-manager starts, with a
	// configuration that has all rights. It is the place to create CustomResourceDefinitions: the garbage collector
	// knows their kinds from its start, and takes up to 30 seconds to notice those that come later. Start returns the
	// error of Prepare, and leaves nothing running.
	Prepare func(ctx context.Context, cfg *rest.Config) error

	// Kubelet also runs stand-ins for the scheduler, a node and a volume provisioner, in this process: see package
	// kubelet. Pods become Running and Ready, and claims Bound, but no containers run.
	Kubelet bool

	// APIServerFlags and EtcdFlags are appended to the flags that Start sets, so they take precedence.
	APIServerFlags []string
	EtcdFlags      []string

	// FeatureGates are feature gates of kube-apiserver in addition to ShardedListAndWatch=true.
	FeatureGates map[string]bool

	// StartTimeout bounds the time until a started server is ready. Default: one minute.
	StartTimeout time.Duration

	// UnsafeNoFsync makes etcd faster. etcd may then lose data if the machine fails, but not if only the process fails.
	UnsafeNoFsync bool

	// Progress, if set, receives lines about the build of the binaries; see [BuildOptions.Progress].
	Progress io.Writer

	// Logger receives one line per start, stop and failure of a server. Default: none.
	Logger *slog.Logger
}

const (
	defaultStartTimeout = time.Minute

	// The sum is well below the ten seconds that Stop guarantees. The controller manager is killed: it has no state.
	apiServerGrace = 3 * time.Second
	etcdGrace      = 3 * time.Second
)

func (o Options) withDefaults() Options {
	if o.StartTimeout <= 0 {
		o.StartTimeout = defaultStartTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Dir == "" {
		o.UnsafeNoFsync = true
	}
	return o
}
