// Package command has what tests of fairlead share. It checks exit codes in scripts, and reads the events that fairlead
// watch prints.
package command
