// Package command has helpers for tests of the fairlead command. They check exit codes in scripts and read the events
// that fairlead watch prints.
package command
