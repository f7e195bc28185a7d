//go:build unix && !linux

package child

import "syscall"

// Attr puts a process in a group of its own, so that a Ctrl-C in the terminal ends us and we end it. That it
// dies with us is the guard's work here.
func Attr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// NeedsGuard says whether the kernel leaves processes behind when their parent dies.
const NeedsGuard = true
