package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// endLeftovers kills servers that a suite has not stopped: those with a file in the run's temporary directory among
// their arguments. Then it removes the directory.
func endLeftovers(temporary string) error {
	out, err := exec.Command("ps", "-axww", "-o", "pid=,args=").Output()
	if err != nil {
		return fmt.Errorf("cannot look for servers that a suite has left behind: %w", err)
	}
	for _, pid := range leftovers(string(out), temporary) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // the process may have ended
	}
	return os.RemoveAll(temporary)
}

// leftovers returns the processes in the output of ps that have a file in dir among their arguments.
func leftovers(list, dir string) (pids []int) {
	for line := range strings.Lines(list) {
		id, arguments, _ := strings.Cut(strings.TrimSpace(line), " ")
		if pid, err := strconv.Atoi(id); err == nil && pid > 1 && strings.Contains(arguments, dir+"/") {
			pids = append(pids, pid)
		}
	}
	return pids
}
