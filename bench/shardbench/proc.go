package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fairlead-io/fairlead/bench/internal/proc"
)

// server returns the PID of the kube-apiserver that this process has started.
func server() (pid int, err error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	for _, dir := range dirs {
		id, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		name, parent, _, err := proc.Stat(id)
		if err == nil && parent == os.Getpid() && strings.HasPrefix("kube-apiserver", name) {
			return id, nil
		}
	}
	return 0, fmt.Errorf("cannot find kube-apiserver among the children of %d", os.Getpid())
}
