package cluster

import (
	"errors"
	"fmt"
)

var (
	// ErrInUse means that another Cluster, of this or another process, runs in the directory. The error names the
	// directory and the process.
	ErrInUse = errors.New("directory in use")

	// ErrStopped means that the Cluster has been stopped.
	ErrStopped = errors.New("control plane stopped")

	// ErrServerExited means that a server exited unexpectedly. The error is a [*ServerError].
	ErrServerExited = errors.New("server exited")

	// ErrNotReady means that a server did not become ready in time. The error is a [*ServerError].
	ErrNotReady = errors.New("server not ready in time")

	// errAddressInUse means that another process took the port between its choice and its use.
	errAddressInUse = errors.New("address already in use")
)

// inUseError names the process that holds a directory.
type inUseError struct {
	dir string
	pid int // of the holder; 0 if unknown
}

func (e *inUseError) Error() string {
	if e.pid == 0 {
		return fmt.Sprintf("directory %s is in use by another process", e.dir)
	}
	return fmt.Sprintf("directory %s is in use by process %d", e.dir, e.pid)
}

// Is reports whether target is [ErrInUse].
func (e *inUseError) Is(target error) bool { return target == ErrInUse }

// ServerError is the failure of one server, with the end of its log.
type ServerError struct {
	Server string // "etcd", "kube-apiserver" or "kube-controller-manager"
	Err    error
	Log    string // the last lines of the server's log
	Path   string // of the whole log
}

func (e *ServerError) Error() string {
	if e.Log == "" {
		return fmt.Sprintf("%s: %v (log: %s)", e.Server, e.Err, e.Path)
	}
	return fmt.Sprintf("%s: %v; end of %s:\n%s", e.Server, e.Err, e.Path, e.Log)
}

func (e *ServerError) Unwrap() error { return e.Err }
