package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// endLeftovers ends the servers that a suite has left behind, as some do: those that were given a file in the
// temporary directory of the run. Then it removes the directory.
func endLeftovers(temporary string) error {
	out, err := exec.Command("ps", "-axww", "-o", "pid=,args=").Output()
	if err != nil {
		return fmt.Errorf("cannot look for servers that a suite has left behind: %w", err)
	}
	for _, pid := range leftovers(string(out), temporary) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
	}
	return os.RemoveAll(temporary)
}

// leftovers are the processes in a list of ps that have a file of a directory among their arguments.
func leftovers(list, dir string) (pids []int) {
	for line := range strings.Lines(list) {
		id, arguments, _ := strings.Cut(strings.TrimSpace(line), " ")
		if pid, err := strconv.Atoi(id); err == nil && pid > 1 && strings.Contains(arguments, dir+"/") {
			pids = append(pids, pid)
		}
	}
	return pids
}
