package controller

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/fairlead-io/fairlead/operations/executor"
)

// openCrashLog makes the Go runtime write a report into a directory if this process crashes. setOutput is
// debug.SetCrashOutput. With an error, another process may open the directory.
func openCrashLog(dir string, setOutput func(*os.File, debug.CrashOptions) error) (*executor.CrashLog, error) {
	crashes, err := executor.OpenCrashLog(dir)
	if err != nil {
		return nil, err
	}
	if err := setOutput(crashes.Output(), debug.CrashOptions{}); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot write crash reports to %s: %w", dir, err), crashes.Close())
	}
	return crashes, nil
}

func closeCrashLog(crashes *executor.CrashLog, log *slog.Logger) {
	_ = debug.SetCrashOutput(nil, debug.CrashOptions{}) // cannot fail without a file
	if err := crashes.Close(); err != nil {
		log.Warn("cannot close the crash log", "error", err)
	}
}
