// Package proc reads memory and processor times of processes from /proc of Linux.
package proc

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Resident returns the resident memory of a process in bytes, or 0 if there is no such process.
func Resident(pid int) int64 {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if fields := bytes.Fields(s.Bytes()); len(fields) > 1 && string(fields[0]) == "VmRSS:" {
			n, _ := strconv.ParseInt(string(fields[1]), 10, 64)
			return n << 10
		}
	}
	return 0
}

// tick is the unit of processor times in /proc (USER_HZ).
const tick = 10 * time.Millisecond

// Stat reads /proc/PID/stat and returns the name, the parent and the used processor time.
func Stat(pid int) (name string, parent int, used time.Duration, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, 0, err
	}
	// The name is in parentheses and may contain parentheses. After it come the state, the parent, and as the 12th
	// and 13th field utime and stime, see proc(5).
	text := string(b)
	from, to := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if from < 0 || to < from {
		return "", 0, 0, fmt.Errorf("cannot read /proc/%d/stat: %q", pid, text)
	}
	fields := strings.Fields(text[to+1:])
	if len(fields) < 13 {
		return "", 0, 0, fmt.Errorf("cannot read /proc/%d/stat: %q", pid, text)
	}
	var user, system int64
	if _, err := fmt.Sscan(fields[1]+" "+fields[11]+" "+fields[12], &parent, &user, &system); err != nil {
		return "", 0, 0, fmt.Errorf("cannot read /proc/%d/stat: %w", pid, err)
	}
	return text[from+1 : to], parent, time.Duration(user+system) * tick, nil
}

// Child returns the PID of a child of this process by its name.
func Child(name string) (pid int, err error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	for _, dir := range dirs {
		id, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		found, parent, _, err := Stat(id)
		if err == nil && parent == os.Getpid() && found != "" && strings.HasPrefix(name, found) { // cut by the kernel
			return id, nil
		}
	}
	return 0, fmt.Errorf("cannot find %s among the children of %d", name, os.Getpid())
}
