// Package child holds what processes have in common that must not outlive the one that started them.
//
// The kernel's signal on the death of a parent is about the thread that forked: whoever uses Attr keeps that thread,
// with runtime.LockOSThread, until the process has ended.
package child
