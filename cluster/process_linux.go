package cluster

import "syscall"

// dieWithParent puts the server in a group of its own, so that a Ctrl-C in the terminal ends us and we end it, and has
// the kernel kill it when we die.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

const needsGuard = false
