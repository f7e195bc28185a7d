package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
)

// Cluster is a running control plane. Its methods are safe for concurrent use. Methods that start or stop servers run
// one at a time.
type Cluster struct {
	dir       string
	temporary bool
	timeout   time.Duration
	log       *slog.Logger
	lock      *fileLock
	etcd      *etcdServer
	api       *apiServer
	manager   *controllerManager
	config    *rest.Config

	// op is a lock that supports waiting with a context. Its holder may start and stop servers.
	op         chan struct{}
	etcdRun    *process // nil while it should not run; guarded by op
	apiRun     *process // nil while it should not run; guarded by op
	managerRun *process // nil while it should not run; guarded by op
	endKubelet func()   // nil if there is none; guarded by op
	stopped    bool     // guarded by op

	watchers sync.WaitGroup // one for each process, and the kubelet

	failOnce sync.Once
	failed   chan struct{} // closed when err is set: a server exited unexpectedly, or Stop was called
	err      error
}

// Start builds the binaries if necessary, starts the servers, and returns when all are ready. The context
// bounds only Start, not the life of the control plane. The caller must call Stop.
//
// The errors are [ErrInUse], [ErrServerExited] and [ErrNotReady] (the latter two with the end of the server's log), and
// failures of [Build] and of the file system.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	c, err := start(ctx, o.withDefaults())
	if err != nil {
		return nil, fmt.Errorf("cannot start control plane: %w", err)
	}
	return c, nil
}

func start(ctx context.Context, o Options) (_ *Cluster, err error) {
	if err := complete(ctx, &o); err != nil {
		return nil, err
	}
	c := &Cluster{
		timeout: o.StartTimeout, log: o.Logger, temporary: o.Dir == "",
		op: make(chan struct{}, 1), failed: make(chan struct{}),
	}
	if err := c.openDir(o.Dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c.shutdown()
		}
	}()

	keys := pki{filepath.Join(c.dir, "pki")}
	if err := keys.ensure(); err != nil {
		return nil, fmt.Errorf("cannot make credentials: %w", err)
	}
	if c.etcd, err = newEtcd(o.Binaries.Etcd, c.dir, o.UnsafeNoFsync, o.EtcdFlags); err != nil {
		return nil, err
	}
	c.api = &apiServer{
		binary: o.Binaries.APIServer, dir: c.dir, etcdURL: c.etcd.url(), pki: keys,
		gates: o.FeatureGates, extra: o.APIServerFlags, accounts: o.ControllerManager,
	}
	c.manager = &controllerManager{
		binary: o.Binaries.ControllerManager, dir: c.dir, kubeconfig: c.KubeconfigPath(), api: c.api,
	}
	begin := time.Now()
	if err := c.startEtcd(ctx); err != nil {
		return nil, err
	}
	if err := c.startOnFreePort(ctx); err != nil {
		return nil, err
	}
	if c.config, err = c.api.restConfig(); err != nil {
		return nil, err
	}
	if err := writeKubeconfig(c.KubeconfigPath(), c.config); err != nil {
		return nil, err
	}
	if o.Prepare != nil {
		if err := o.Prepare(ctx, c.Config()); err != nil {
			return nil, fmt.Errorf("cannot prepare the control plane: %w", err)
		}
	}
	if err := c.startManager(ctx); err != nil {
		return nil, err
	}
	if o.Kubelet {
		if err := c.startKubelet(ctx); err != nil {
			return nil, err
		}
	}
	c.log.InfoContext(ctx, "control plane started", "dir", c.dir, "address", c.config.Host, "took", time.Since(begin))
	return c, nil
}

// complete builds or finds the binaries that o does not set.
func complete(ctx context.Context, o *Options) error {
	if !o.ControllerManager {
		o.Binaries.ControllerManager = ""
	}
	if o.Binaries.Etcd != "" && o.Binaries.APIServer != "" &&
		(o.Binaries.ControllerManager != "" || !o.ControllerManager) {
		return nil
	}
	built, err := Build(ctx, BuildOptions{
		CacheDir: o.CacheDir, Progress: o.Progress, ControllerManager: o.ControllerManager,
	})
	if err != nil {
		return err
	}
	if o.Binaries.Etcd == "" {
		o.Binaries.Etcd = built.Etcd
	}
	if o.Binaries.APIServer == "" {
		o.Binaries.APIServer = built.APIServer
	}
	if o.Binaries.ControllerManager == "" {
		o.Binaries.ControllerManager = built.ControllerManager
	}
	return nil
}

// openDir creates the directory and locks it.
func (c *Cluster) openDir(dir string) error {
	var err error
	if c.temporary {
		if dir, err = newTemporaryDir(); err != nil {
			return err
		}
	}
	if c.dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	var holder int
	c.lock, holder, err = tryLock(filepath.Join(c.dir, lockFile))
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return &inUseError{dir: c.dir, pid: holder}
	}
	return err
}

// startOnFreePort starts kube-apiserver on its previous port or, if that is taken, on another one.
func (c *Cluster) startOnFreePort(ctx context.Context) error {
	path := filepath.Join(c.dir, "apiserver.port")
	b, _ := os.ReadFile(path)
	preferred, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	port, err := c.onFreePort(ctx, preferred, func(port int) error {
		c.api.port = port
		return c.startAPIServer(ctx)
	})
	if err != nil {
		return err
	}
	return writeFile(path, []byte(strconv.Itoa(port)+"\n"))
}

// Stop ends all servers within ten seconds and releases the directory. It may be called more than once.
func (c *Cluster) Stop() {
	c.op <- struct{}{}
	defer func() { <-c.op }()
	c.shutdown()
}

func (c *Cluster) shutdown() {
	if c.stopped {
		return
	}
	c.stopped = true
	apiGrace, dbGrace := apiServerGrace, etcdGrace
	if c.temporary {
		apiGrace, dbGrace = 0, 0 // the data is discarded
	}
	if c.etcdRun != nil {
		_ = c.etcdRun.signal(syscall.SIGCONT) // kube-apiserver would wait for a paused etcd
	}
	if c.apiRun != nil {
		_ = c.apiRun.signal(syscall.SIGCONT) // a paused process does not handle SIGTERM
	}
	if c.endKubelet != nil {
		c.endKubelet()
	}
	c.endManager()
	c.endAPIServer(apiGrace)
	c.endEtcd(dbGrace)
	c.fail(nil)
	c.watchers.Wait()
	if c.etcd != nil {
		c.etcd.remove()
	}
	if c.temporary {
		_ = os.RemoveAll(c.dir)
	}
	if c.lock != nil {
		c.lock.unlock()
	}
	c.log.Info("control plane stopped", "dir", c.dir)
}

// Dir returns the directory of all files: data, credentials, kubeconfig and the servers' logs.
func (c *Cluster) Dir() string { return c.dir }

// KubeconfigPath returns the path of a kubeconfig file with administrator rights. Its context is "fairlead".
func (c *Cluster) KubeconfigPath() string { return filepath.Join(c.dir, "kubeconfig") }

// Config returns a client configuration with administrator rights and without a rate limit. The caller owns it.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Done returns a channel that is closed when the control plane has stopped, by Stop or because a server exited; see
// Err.
func (c *Cluster) Done() <-chan struct{} { return c.failed }

// Err returns nil while the control plane runs and after Stop. If a server exited unexpectedly, it returns a
// [*ServerError] that matches [ErrServerExited]. Stop must be called even then.
func (c *Cluster) Err() error {
	select {
	case <-c.failed:
		return c.err
	default:
		return nil
	}
}

func (c *Cluster) fail(err error) {
	c.failOnce.Do(func() {
		c.err = err
		close(c.failed)
	})
}
