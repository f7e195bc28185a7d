package cluster_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// eventually asks until the condition holds. For conditions of other processes, which send no signal.
func eventually(t *testing.T, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(limit)
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}

// childrenOf returns the direct children of a process.
func childrenOf(t *testing.T, parent int) []int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var children []int
	for _, path := range stats {
		if state, ppid := stat(path); ppid == parent && state != "Z" {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil {
				t.Fatal(err)
			}
			children = append(children, pid)
		}
	}
	return children
}

func running(pid int) bool {
	state, _ := stat(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return state != "" && state != "Z"
}

// stat returns state and parent of a process, or "" and 0 when it is gone.
func stat(path string) (state string, parent int) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", 0
	}
	_, rest, _ := strings.Cut(string(b), ") ") // the command's name may have spaces, but ends with the last bracket
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return "", 0
	}
	parent, _ = strconv.Atoi(fields[1])
	return fields[0], parent
}

func commandLine(pid int) string {
	b, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return strings.ReplaceAll(string(b), "\x00", " ")
}
