package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// waitFile waits until a program in the background has made a file: waitfile path
func waitFile(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: waitfile path")
	}
	await(ts, args[0]+" does not appear", func() bool {
		_, err := os.Stat(ts.MkAbs(args[0]))
		return err == nil
	})
}

// waitLog waits until a program in the background has written a text into a file: waitlog path text
func waitLog(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: waitlog path text")
	}
	await(ts, args[0]+" does not say "+args[1], func() bool {
		log, err := os.ReadFile(ts.MkAbs(args[0]))
		return err == nil && bytes.Contains(log, []byte(args[1]))
	})
}

func await(ts *testscript.TestScript, failure string, done func() bool) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			ts.Fatalf("%s", failure)
		}
	}
}

// exits runs a program that must end with an exit code: exits code program [argument…]
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits code program [argument…]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}
