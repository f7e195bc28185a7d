package cluster

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// The module that has the servers as tools: copies of controlplane/go.mod and go.sum (a test compares them). They
// have other names, since an embedded go.mod would make its directory a module.
var (
	//go:embed gomod.txt
	goMod string
	//go:embed gosum.txt
	goSum string
)

const (
	etcdPackage      = "go.etcd.io/etcd/server/v3"
	apiServerPackage = "k8s.io/kubernetes/cmd/kube-apiserver"
	managerPackage   = "k8s.io/kubernetes/cmd/kube-controller-manager"

	kubernetesVersion = "v1.36.3"

	// Binaries that were not used during this time are removed when others are built.
	keepUnused = 30 * 24 * time.Hour
)

// buildFlags are part of the cache key.
var buildFlags = []string{
	"-trimpath", "-buildvcs=false",
	"-ldflags=-s -w -X k8s.io/component-base/version.gitVersion=" + kubernetesVersion,
}

// Binaries are the paths of the executables of the servers.
type Binaries struct {
	Etcd              string
	APIServer         string
	ControllerManager string // empty if it was not asked for
}

// BuildOptions configure Build.
type BuildOptions struct {
	// CacheDir contains one directory of binaries for each set of versions (modules, Go, platform).
	// Default: fairlead/controlplane in [os.UserCacheDir].
	CacheDir string

	// ControllerManager asks for kube-controller-manager as well.
	ControllerManager bool

	// Progress, if set, receives lines about the build: one at each change of its stage, and at most one in five seconds.
	Progress io.Writer
}

// Build returns the binaries of the servers. It builds those that are not in the cache. A build of etcd and
// kube-apiserver takes about five minutes on two cores; kube-controller-manager takes about two more. A build needs a
// go command and a module proxy. Several processes may call Build
// concurrently: one builds, the others wait. An interrupted build does not affect later ones, and its compiled packages
// stay in the go command's own cache.
func Build(ctx context.Context, o BuildOptions) (Binaries, error) {
	return build(ctx, o, linesTo(o.Progress))
}

// build is Build with a callback, which is called at each change and about once a second. Calls are not concurrent, and
// a call must not block.
func build(ctx context.Context, o BuildOptions, fn func(report)) (Binaries, error) {
	b := builder{cache: o.CacheDir, servers: serversOf(o), progress: newProgress(fn)}
	defer b.progress.stop()
	bins, err := b.build(ctx)
	if err != nil {
		return Binaries{}, fmt.Errorf("cannot build the control plane: %w", err)
	}
	return bins, nil
}

// server is one binary to build.
type server struct {
	name, pkg string
	path      func(*Binaries) *string
}

// serversOf returns the servers to build.
func serversOf(o BuildOptions) []server {
	servers := []server{
		{"etcd", etcdPackage, func(b *Binaries) *string { return &b.Etcd }},
		{"kube-apiserver", apiServerPackage, func(b *Binaries) *string { return &b.APIServer }},
	}
	if o.ControllerManager {
		servers = append(servers,
			server{"kube-controller-manager", managerPackage, func(b *Binaries) *string { return &b.ControllerManager }})
	}
	return servers
}

type builder struct {
	cache    string
	servers  []server
	goCmd    string
	progress *progress
}

func (b *builder) build(ctx context.Context) (Binaries, error) {
	if b.cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return Binaries{}, fmt.Errorf("no cache directory given, and no default: %w", err)
		}
		b.cache = filepath.Join(user, "fairlead", "controlplane")
	}
	var err error
	if b.cache, err = filepath.Abs(b.cache); err != nil {
		return Binaries{}, err
	}
	if b.goCmd, err = exec.LookPath("go"); err != nil {
		return Binaries{}, fmt.Errorf("a go command is needed: %w", err)
	}
	key, err := b.key(ctx)
	if err != nil {
		return Binaries{}, err
	}

	dir := filepath.Join(b.cache, key)
	if bins, missing := b.cached(dir); len(missing) == 0 {
		return bins, nil
	}
	if err := os.MkdirAll(b.cache, 0o755); err != nil {
		return Binaries{}, err
	}
	lock, err := waitLock(ctx, filepath.Join(b.cache, key+".lock"), func(pid int) {
		b.progress.set(func(r *report) { r.stage, r.detail = stageWait, fmt.Sprintf("process %d", pid) })
	})
	if err != nil {
		return Binaries{}, err
	}
	defer lock.unlock()
	bins, missing := b.cached(dir)
	if len(missing) == 0 { // the previous holder has built them
		return bins, nil
	}
	b.prune(key)
	return b.compile(ctx, dir, missing)
}

// key identifies the set of binaries by modules, Go version and platform.
func (b *builder) key(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, b.goCmd, "env", "GOVERSION")
	// The directory is outside of any module, whose go.mod could select another toolchain: any user can create one in
	// /tmp.
	cmd.Dir, cmd.Env = "/", buildEnv()
	version, err := cmd.Output()
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("go env: %w", withStderr(err))
	}
	h := sha256.New()
	for _, part := range []string{
		goMod, goSum, string(version), runtime.GOOS, runtime.GOARCH,
		strings.Join(buildFlags, " "),
	} {
		_, _ = fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// cached returns the binaries in dir, and the servers that are missing there. A binary appears by a rename.
func (b *builder) cached(dir string) (bins Binaries, missing []server) {
	for _, s := range b.servers {
		path := filepath.Join(dir, s.name)
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			missing = append(missing, s)
		}
		*s.path(&bins) = path
	}
	if len(missing) == 0 {
		now := time.Now()
		_ = os.Chtimes(dir, now, now) // marks it as used for prune; a read-only cache is fine
	}
	return bins, missing
}

// prune removes the remains of interrupted builds of key and binaries that were not used for a long time.
func (b *builder) prune(key string) {
	entries, _ := os.ReadDir(b.cache)
	for _, e := range entries {
		path := filepath.Join(b.cache, e.Name())
		if strings.HasPrefix(e.Name(), key+".tmp") {
			_ = os.RemoveAll(path) // safe: the lock of key is held
			continue
		}
		info, err := e.Info()
		if err != nil || !e.IsDir() || strings.Contains(e.Name(), ".") || time.Since(info.ModTime()) < keepUnused {
			continue
		}
		if lock, _, err := tryLock(path + ".lock"); err == nil {
			_ = os.RemoveAll(path)
			lock.unlock()
		}
	}
}

// compile builds the missing servers into dir. The caller holds its lock.
func (b *builder) compile(ctx context.Context, dir string, missing []server) (Binaries, error) {
	tmp, err := os.MkdirTemp(b.cache, filepath.Base(dir)+".tmp")
	if err != nil {
		return Binaries{}, err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	mod, bin := filepath.Join(tmp, "mod"), filepath.Join(tmp, "bin")
	err = errors.Join(
		os.Mkdir(mod, 0o755),
		os.Mkdir(bin, 0o755),
		os.WriteFile(filepath.Join(mod, "go.mod"), []byte(goMod), 0o644),
		os.WriteFile(filepath.Join(mod, "go.sum"), []byte(goSum), 0o644),
	)
	if err != nil {
		return Binaries{}, err
	}

	// This counts the packages to compile, as the total for progress, and downloads the modules.
	b.progress.set(func(r *report) { r.stage, r.detail = stageDownload, "" })
	list := append([]string{"list", "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}"}, buildFlags...)
	var names []string
	for _, s := range missing {
		list, names = append(list, s.pkg), append(names, s.name)
	}
	stale := 0
	err = b.run(ctx, mod, list, func(line string) { stale++ })
	if err != nil {
		return Binaries{}, err
	}

	b.progress.set(func(r *report) { r.stage, r.total, r.servers = stageCompile, stale, strings.Join(names, ", ") })
	for _, s := range missing {
		args := append([]string{"build", "-v", "-o", filepath.Join(bin, s.name)}, buildFlags...)
		if err := b.run(ctx, mod, append(args, s.pkg), nil); err != nil {
			return Binaries{}, err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Binaries{}, err
	}
	for _, s := range missing {
		// cached has found, under the lock, that this is not a usable file.
		to := filepath.Join(dir, s.name)
		if err := errors.Join(os.RemoveAll(to), os.Rename(filepath.Join(bin, s.name), to)); err != nil {
			return Binaries{}, err
		}
	}
	bins, missing := b.cached(dir)
	if len(missing) > 0 {
		return Binaries{}, fmt.Errorf("%s missing in %s after the build", missing[0].name, dir)
	}
	b.progress.set(func(r *report) { r.stage, r.detail = stageDone, "" })
	return bins, nil
}

// run runs the go command in dir, passes each line of its output to out, and turns its messages into progress.
func (b *builder) run(ctx context.Context, dir string, args []string, out func(string)) error {
	cmd := exec.CommandContext(ctx, b.goCmd, args...)
	cmd.Dir, cmd.Env = dir, buildEnv()
	// A separate process group: cancelling also ends the compilers, and Ctrl-C reaches only this process.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second

	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return err
	}
	messages := b.follow(stderr)
	err = cmd.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("go %s: %w\n%s", args[0], err, strings.Join(messages, "\n"))
	}
	if out != nil {
		for line := range strings.Lines(stdout.String()) {
			out(line)
		}
	}
	return nil
}

// follow reads the messages of the go command until it ends. It returns the last lines that are not progress.
func (b *builder) follow(r io.Reader) (messages []string) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		switch module, ok := strings.CutPrefix(line, "go: downloading "); {
		case ok:
			b.progress.set(func(r *report) { r.modules++; r.detail = module })
		case isImportPath(line):
			b.progress.set(func(r *report) { r.done++; r.detail = line })
		default:
			messages = append(messages, line)
			if len(messages) > 20 {
				messages = messages[1:]
			}
		}
	}
	_, _ = io.Copy(io.Discard, r) // a line beyond the limit must not block the go command
	return messages
}

// isImportPath reports whether a line of go build -v is an import path. Messages contain spaces or start with '#'.
func isImportPath(line string) bool {
	return line != "" && !strings.ContainsAny(line, " \t:#")
}

// buildEnv returns the environment of the go command, without variables that could change or break the build.
func buildEnv() []string {
	return append(os.Environ(),
		"GO111MODULE=on", "GOWORK=off", "GOFLAGS=-mod=readonly", "CGO_ENABLED=0",
		"GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH,
	)
}

func withStderr(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	return err
}
