package cluster

import (
	"os"
	"path/filepath"
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
		info, err := os.Lstat(filepath.Join(dir, lockFile))
		if err != nil || time.Since(info.ModTime()) < tempMinAge {
			continue
		}
		if lock, _, err := tryLock(filepath.Join(dir, lockFile)); err == nil {
			_ = os.RemoveAll(dir) // nobody holds it; what belongs to another user stays
			lock.unlock()
		}
	}
	return os.MkdirTemp("", tempPrefix) // mode 0700
}
