// Package child provides the attributes of child processes that must not outlive their parent.
//
// The kernel sends the signal when the thread that forked ends. A caller that uses Attr must keep that thread, with
// runtime.LockOSThread, until the process has ended.
package child
