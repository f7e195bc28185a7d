package child

import "syscall"

// Attr puts a process in a group of its own, so that a Ctrl-C in the terminal ends us and we end it, and has
// the kernel kill it when we die.
func Attr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// NeedsGuard says whether the kernel leaves processes behind when their parent dies.
const NeedsGuard = false
