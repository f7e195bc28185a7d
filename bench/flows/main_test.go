package main

import (
	"os"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if child(os.Stdout) {
		return
	}
	os.Exit(m.Run())
}

// TestRows makes small rows. It checks what they measure, not how fast they are.
func TestRows(t *testing.T) {
	var out strings.Builder
	if err := run(small, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"F1: ", "F2: ", "F3: ", "F4: ", "Waiting for a condition", "controller-runtime",
		"| F4 | 10,000 saved fibers",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	t.Log(out.String())
}

func TestParkedChecksItsMeasurement(t *testing.T) {
	if _, err := parked("nonsense", 1); err == nil {
		t.Error("no error")
	}
}
