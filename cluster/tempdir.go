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

	// A directory this young may belong to a process that has not locked it yet.
	tempMinAge = 10 * time.Minute
)

// newTemporaryDir makes a directory and removes those of processes that were killed before they could.
func newTemporaryDir() (string, error) {
	old, _ := filepath.Glob(filepath.Join(os.TempDir(), tempPrefix+"*"))
	for _, dir := range old {
		removeAbandoned(dir)
	}
	return os.MkdirTemp("", tempPrefix) // mode 0700
}

// removeAbandoned removes a directory that nobody holds. Everybody may write where it is, so that it may be a trap:
// only what this user has made, and no other one can write to, is touched.
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

// isPrivate reports whether path is a directory, and no link to one, that belongs to this user and to which nobody else
// can write.
func isPrivate(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() || info.Mode().Perm()&0o022 != 0 {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
