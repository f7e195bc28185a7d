package cluster

import (
	"log/slog"
	"time"
)

// Options says how to start a control plane. The zero value starts a temporary one.
type Options struct {
	// Dir keeps everything: etcd's data, certificates, credentials, kubeconfig, logs. It is created when missing.
	// Empty: a temporary directory, which Stop removes; UnsafeNoFsync is then implied.
	Dir string

	// CacheDir keeps the binaries, see [BuildOptions.CacheDir].
	CacheDir string

	// Binaries names binaries that exist already. Where it is empty, they are built, once for all who share CacheDir.
	Binaries Binaries

	// APIServerFlags and EtcdFlags are added after the flags that Start sets, so they win where a flag is given twice.
	APIServerFlags []string
	EtcdFlags      []string

	// FeatureGates of kube-apiserver; added to ShardedListAndWatch=true.
	FeatureGates map[string]bool

	// StartTimeout bounds the time from the start of a server until it is ready. Default: one minute.
	StartTimeout time.Duration

	// UnsafeNoFsync makes etcd faster and lets it lose data when the machine (not only the process) fails.
	UnsafeNoFsync bool

	// Progress, if set, is called while binaries are built, see [BuildOptions.Progress].
	Progress func(Progress)

	// Logger gets one line per start, stop and failure of a server. Default: none.
	Logger *slog.Logger
}

const (
	defaultStartTimeout = time.Minute

	// Together well under the ten seconds that Stop promises.
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
