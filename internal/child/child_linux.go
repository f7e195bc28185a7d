package child

import "syscall"

// Attr puts a process in its own process group, so that Ctrl-C in the terminal reaches only the parent, which then ends
// the child. The kernel kills the child when the parent dies.
func Attr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// NeedsGuard reports whether the kernel leaves child processes running when their parent dies.
const NeedsGuard = false
