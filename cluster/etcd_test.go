package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The path of the socket is short enough for the kernel, however long the directory of temporary files is.
func TestSocketPath(t *testing.T) {
	for _, length := range []int{10, 90, 200} {
		temp := filepath.Join(t.TempDir(), strings.Repeat("d", length))
		if err := os.Mkdir(temp, 0o700); err != nil {
			t.Fatal(err)
		}
		t.Setenv("TMPDIR", temp)
		dir, err := newTemporaryDir()
		if err != nil {
			t.Fatal(err)
		}
		e, err := newEtcd("etcd", dir, true, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(e.socket) > socketPathLimit {
			t.Errorf("the path %s has %d bytes", e.socket, len(e.socket))
		}
		if parent := filepath.Dir(e.socket); parent != dir {
			if err := os.Remove(parent); err != nil {
				t.Error(err)
			}
		}
	}
}
