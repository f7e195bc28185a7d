package cluster

import (
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	lockFile   = "lock"
	tempPrefix = "fairlead-cluster-"

	// A younger directory may belong to a process that has not locked it yet.
	tempMinAge = 10 * time.Minute
)

// newTemporaryDir creates a directory. It also removes directories of processes that were killed.
func newTemporaryDir() (string, error) {
	old, _ := filepath.Glob(filepath.Join(os.TempDir(), tempPrefix+"*"))
	for _, dir := range old {
		removeAbandoned(dir)
	}
	return os.MkdirTemp("", tempPrefix) // mode 0700
}

// removeAbandoned removes a directory that no process holds. The parent is writable by all users, so another user may
// have planted the directory. Only directories of this user that no other user can write to are removed.
func removeAbandoned(dir string) {
	if !isPrivate(dir) {
		return
	}
	info, err := os.Lstat(filepath.Join(dir, lockFile))
	if err != nil || !info.Mode().IsRegular() || time.Since(info.ModTime()) < tempMinAge {
		return
	}
	if lock, _, err := tryLock(filepath.Join(dir, lockFile)); err == nil {
		_ = os.RemoveAll(dir)
		lock.unlock()
	}
}

// isPrivate reports whether path is a directory, not a link, that belongs to this user and that no other user can write
// to.
func isPrivate(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() || info.Mode().Perm()&0o022 != 0 {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
