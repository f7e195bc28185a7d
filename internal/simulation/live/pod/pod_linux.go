package pod

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// variable names the directory of the files for a process that mounts them.
const variable = "FAIRLEAD_SERVICE_ACCOUNT"

// self is the program of this process, and of the process that it starts.
const self = "/proc/self/exe"

// Pod runs programs with the files of a service account. It has no state, and is safe for concurrent use.
type Pod struct {
	account string
	user    bool // a program has its own user namespace
}

// New returns a Pod with the files of a directory. It fails if this machine does not allow to mount them.
func New(account string) (*Pod, error) {
	var failed error
	for _, user := range []bool{false, true} {
		p := &Pod{account: account, user: user}
		cmd := &exec.Cmd{Args: []string{""}, SysProcAttr: &syscall.SysProcAttr{}}
		p.Enter(cmd)
		said, err := cmd.CombinedOutput()
		if err == nil {
			return p, nil
		}
		if text := strings.TrimSpace(string(said)); text != "" {
			err = errors.New(text)
		}
		failed = err
	}
	return nil, fmt.Errorf("cannot run a program as in a Pod: %w", failed)
}

// Enter changes a command that has not started, so that its program finds the files in Dir. The command must have
// SysProcAttr.
func (p *Pod) Enter(cmd *exec.Cmd) {
	if cmd.Path != "" {
		cmd.Args[0] = cmd.Path
	}
	cmd.Path = self
	cmd.Env = append(cmd.Environ(), variable+"="+p.account)
	cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWNS
	if !p.user {
		return
	}
	uid, gid := os.Getuid(), os.Getgid()
	cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
	cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
	cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
	cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN} // to mount; the program does not get it
}

// init mounts the files in the process that Enter describes, and runs the program. Without arguments it only mounts.
func init() { //nolint:gochecknoinits // it must run before anything of the program that uses this package
	account, ok := os.LookupEnv(variable)
	if !ok {
		return
	}
	err := mount(account)
	if err == nil && os.Args[0] == "" {
		os.Exit(0)
	}
	if err == nil {
		err = become(os.Args)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(126) // as shells do if a program cannot be run
}

// become replaces this process by a program, without the right to mount.
func become(args []string) error {
	if err := os.Unsetenv(variable); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot give up the right to mount: %w", err)
	}
	return fmt.Errorf("cannot run %s: %w", args[0], syscall.Exec(args[0], args, os.Environ()))
}

// mount shows the files of a directory in Dir, in the mount namespace of this process.
func mount(account string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("cannot separate the mounts from those of the machine: %w", err)
	}
	if err := makeDir(Dir); err != nil {
		return err
	}
	return bind(account, Dir)
}

// makeDir makes a directory that only this mount namespace has. Its nearest parent that exists is replaced by a
// directory in memory with the same entries.
func makeDir(dir string) error {
	parent, rest := dir, ""
	for {
		real, err := filepath.EvalSymlinks(parent)
		if err == nil {
			parent = real
			break
		}
		if !errors.Is(err, os.ErrNotExist) {
			return err
		}
		parent, rest = filepath.Dir(parent), filepath.Join(filepath.Base(parent), rest)
	}
	switch {
	case rest == "":
		return nil
	case parent == "/":
		return fmt.Errorf("cannot make %s: there is no /var", dir)
	}
	if err := replace(parent); err != nil {
		return err
	}
	return os.MkdirAll(filepath.Join(parent, rest), 0o755)
}

// replace mounts a file system in memory over a directory, and shows the former entries in it.
func replace(dir string) error {
	former, err := os.Open(dir) // leads to the directory that the mount hides
	if err != nil {
		return err
	}
	defer former.Close()
	entries, err := former.ReadDir(-1)
	if err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("cannot mount a file system in memory on %s: %w", dir, err)
	}
	for _, e := range entries {
		from := filepath.Join(fmt.Sprintf("/proc/self/fd/%d", former.Fd()), e.Name())
		if err := show(e, from, filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// show makes an entry of a directory appear at another path.
func show(e os.DirEntry, from, to string) error {
	var err error
	switch {
	case e.Type()&os.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case e.IsDir():
		err = os.Mkdir(to, 0o755)
	default:
		err = os.WriteFile(to, nil, 0o600)
	}
	if err != nil {
		return err
	}
	return bind(from, to)
}

func bind(from, to string) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("cannot show %s at %s: %w", from, to, err)
	}
	return nil
}
