package main

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestMain makes the test binary the child that it starts.
func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		if err := runChild(name); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// TestSmall runs each kind of peer on few objects, so that the benchmarks are known to work.
func TestSmall(t *testing.T) {
	o := options{
		objects: 300, rounds: 1, events: 300, rate: 200, blocked: 2000, span: 500 * time.Millisecond,
		peers: []string{"fairlead, protobuf", "client-go typed", "bound: keep the bytes"},
	}
	tables, err := compare(t.Context(), o, func(s string) { t.Log(s) })
	if err != nil {
		t.Fatal(err)
	}
	for _, peer := range o.peers {
		v := tables.values[peer]
		if n := median(v["S1.objects"]); n != 300 {
			t.Errorf("%s has %v objects, want 300", peer, n)
		}
		if n := median(v["S3.events"]); n != 300 {
			t.Errorf("%s was given %v events, want 300", peer, n)
		}
	}
	var out strings.Builder
	tables.write(&out)
	if !strings.Contains(out.String(), "| S1 | sync CPU, against typed |") {
		t.Errorf("no comparison in:\n%s", out.String())
	}
}
