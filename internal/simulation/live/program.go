package live

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-io/fairlead/internal/child"
)

// placeholder in an argument of the command is replaced by the path of the kubeconfig.
const placeholder = "{kubeconfig}"

// LookPath returns the path of a program.
func LookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return "", fmt.Errorf("cannot run the command: %w", err)
	}
	return path, nil
}

// program is the command of the subject.
type program struct {
	command []string
	outside bool   // there are services outside the cluster
	dir     string // of kubeconfig files
}

// run runs a process until it ends, or until ctx ends: then the process and its children are killed. With an account it
// runs as in a Pod. suspendable is given the function that suspends them.
func (g *program) run(
	ctx context.Context, p *proxy, as *account, out *output, suspendable func(func(time.Duration)),
) error {
	kubeconfig, err := g.kubeconfig(p.address)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(kubeconfig) }()
	args := slices.Clone(g.command[1:])
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], placeholder, kubeconfig)
	}
	cmd := exec.Command(g.command[0], args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = g.environment(kubeconfig, p)
	cmd.WaitDelay = time.Second // for pipes that a child of the process keeps open
	cmd.SysProcAttr = child.Attr()
	if as != nil {
		as.pod.Enter(cmd)
	}
	runtime.LockOSThread() // child.Attr needs it
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot start %s: %w", g.command[0], err)
	}
	group := &group{id: cmd.Process.Pid}
	suspendable(group.suspend)
	stop := context.AfterFunc(ctx, func() { group.signal(syscall.SIGKILL) })
	err = cmd.Wait()
	group.end()
	if !stop() {
		return nil // it was killed
	}
	if err == nil {
		return fmt.Errorf("exit status 0%s", out)
	}
	return fmt.Errorf("%w%s", err, out)
}

// environment is that of this process, with another cluster.
func (g *program) environment(kubeconfig string, p *proxy) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "KUBERNETES_SERVICE_") })
	env = append(env, "KUBECONFIG="+kubeconfig)
	if host, port, err := net.SplitHostPort(p.secure); err == nil {
		env = append(env, "KUBERNETES_SERVICE_HOST="+host, "KUBERNETES_SERVICE_PORT="+port,
			"KUBERNETES_SERVICE_PORT_HTTPS="+port)
	}
	if g.outside {
		env = append(env, "HTTP_PROXY=http://"+p.address, "http_proxy=http://"+p.address,
			"NO_PROXY=127.0.0.1,localhost", "no_proxy=127.0.0.1,localhost")
	}
	return env
}

// kubeconfig writes a file that leads to the proxy at an address.
func (g *program) kubeconfig(address string) (string, error) {
	const name = "simulate"
	cfg := api.NewConfig()
	cfg.Clusters[name] = &api.Cluster{Server: "http://" + address}
	cfg.AuthInfos[name] = &api.AuthInfo{}
	cfg.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name, Namespace: "default"}
	cfg.CurrentContext = name
	path := filepath.Join(g.dir, strings.ReplaceAll(address, ":", "-")+".kubeconfig")
	if err := clientcmd.WriteToFile(*cfg, path); err != nil {
		return "", fmt.Errorf("cannot write the kubeconfig of the subject: %w", err)
	}
	return path, nil
}

// group is the process group of a process. It is safe for concurrent use.
type group struct {
	id int

	mu    sync.Mutex
	ended bool
	wake  *time.Timer
}

func (g *group) signal(s syscall.Signal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended {
		_ = syscall.Kill(-g.id, s)
	}
}

// suspend stops the group for d.
func (g *group) suspend(d time.Duration) {
	g.signal(syscall.SIGSTOP)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wake = time.AfterFunc(d, func() { g.signal(syscall.SIGCONT) })
}

// end kills what the process has left behind.
func (g *group) end() {
	g.signal(syscall.SIGKILL)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended = true; g.wake != nil {
		g.wake.Stop()
	}
}
