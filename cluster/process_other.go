//go:build unix && !linux

package cluster

import "syscall"

// dieWithParent puts the server in a group of its own, so that a Ctrl-C in the terminal ends us and we end it. That it
// dies with us is the guard's work here.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

const needsGuard = true
