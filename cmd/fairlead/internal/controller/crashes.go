package controller

import (
	"runtime/debug"

	"github.com/fairlead-io/fairlead/operations/executor"
)

// openCrashes makes the Go runtime write a report if this process crashes.
func (c *controller) openCrashes() (executor.Witness, error) {
	if c.crashDir == "" {
		return nil, nil
	}
	crashes, err := executor.OpenCrashLog(c.crashDir)
	if err != nil {
		return nil, err
	}
	c.crashes = crashes
	return crashes, debug.SetCrashOutput(crashes.Output(), debug.CrashOptions{})
}

func (c *controller) closeCrashes() {
	if c.crashes == nil {
		return
	}
	_ = debug.SetCrashOutput(nil, debug.CrashOptions{}) // cannot fail without a file
	if err := c.crashes.Close(); err != nil {
		c.log.Warn("cannot close the crash log", "error", err)
	}
}
