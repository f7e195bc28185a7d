package controller

import (
	"log/slog"
	"runtime/debug"

	"github.com/fairlead-io/fairlead/operations/executor"
)

// openCrashLog makes the Go runtime write a report into a directory if this process crashes.
func openCrashLog(dir string) (*executor.CrashLog, error) {
	crashes, err := executor.OpenCrashLog(dir)
	if err != nil {
		return nil, err
	}
	return crashes, debug.SetCrashOutput(crashes.Output(), debug.CrashOptions{})
}

func closeCrashLog(crashes *executor.CrashLog, log *slog.Logger) {
	_ = debug.SetCrashOutput(nil, debug.CrashOptions{}) // cannot fail without a file
	if err := crashes.Close(); err != nil {
		log.Warn("cannot close the crash log", "error", err)
	}
}
