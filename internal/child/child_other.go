//go:build unix && !linux

package child

import "syscall"

// Attr puts a process in its own process group, so that Ctrl-C in the terminal reaches only the parent, which then ends
// the child. On this system a guard ends the child when the parent dies.
func Attr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// NeedsGuard reports whether the kernel leaves child processes running when their parent dies.
const NeedsGuard = true
