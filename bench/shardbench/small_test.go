package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/testlimit"
	"github.com/fairlead-io/fairlead/shard"
)

// TestMain makes the test binary the replica that it starts.
func TestMain(m *testing.M) {
	if isChild() {
		if err := runChild(); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// TestSmall runs the benchmark on few objects. Its counts have to be exact.
func TestSmall(t *testing.T) {
	o := options{
		objects: 300, namespaces: namespaces{30, "tenant-%03d"}, balance: true, updates: 60, rounds: 1,
		kind: "configmaps", layout: shard.Layout{By: shard.Namespace},
		processes: []int{1, 2}, gates: []bool{true}, limit: testlimit.Wait, takeovers: true,
	}
	results, err := measure(t.Context(), o, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	write(&text, o, results, time.Now())
	for _, want := range []string{
		"| on | 1 | 64 | 300 |", "### Boundaries of the slots", "### Members that go and come", "### Bars",
		"300 configmaps in 30 namespaces, by namespace",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	for _, r := range results {
		var objects int
		var received, given, observed int64
		for _, s := range r.shares {
			objects, received, given, observed = objects+s.objects, received+s.received, given+s.given, observed+s.observed
		}
		if objects != 300 || received != 60 || given != 60 || observed != 60 {
			t.Errorf("%d replicas hold %d objects, received %d updates, delivered %d, observed %d", r.n, objects, received,
				given, observed)
		}
		if most := max(r.shares[0].objects, r.shares[len(r.shares)-1].objects); r.n == 2 && (r.changes == 0 || most > 180) {
			t.Errorf("a replica holds %d of 300 objects after %d changes of the boundaries", most, r.changes)
		}
		if r.n == 2 && (r.rewritten != 0 || len(r.takeovers) != 6) {
			t.Errorf("%v objects written by %+v", r.rewritten, r.takeovers)
		}
	}
	t.Log(text.String())
}

// TestCounted: an observer may be ahead of the counters of its source.
func TestCounted(t *testing.T) {
	t.Parallel()
	at := func(received, observed int64) stats {
		return stats{Events: observed, Counters: source.Counters{WireEvents: received}}
	}
	for name, c := range map[string]struct {
		after    []stats
		filtered bool
		want     bool
	}{
		"all":                       {[]stats{at(40, 40), at(30, 30)}, true, true},
		"counters behind":           {[]stats{at(38, 40), at(30, 30)}, true, false},
		"observers behind":          {[]stats{at(40, 38), at(30, 30)}, true, false},
		"each receives all":         {[]stats{at(65, 40), at(65, 30)}, false, true},
		"one has not received each": {[]stats{at(65, 40), at(64, 30)}, false, false},
	} {
		if got := counted([]stats{at(5, 5), at(5, 5)}, c.after, 60, c.filtered); got != c.want {
			t.Errorf("%s: counted is %t", name, got)
		}
	}
}

// Replicas and bench compute names and uids alike, without communication.
func TestObjects(t *testing.T) {
	t.Parallel()
	o := options{
		objects: 6400, namespaces: namespaces{workloads, "customer-%04d-prod"}, kind: "pods",
		layout: shard.Layout{By: shard.UID},
	}
	if i, err := numberOf(nameOf(1234567)); i != 1234567 || err != nil {
		t.Errorf("number %d, error %v", i, err)
	}
	if _, err := numberOf("else"); err == nil {
		t.Error("a foreign name has a number")
	}
	counts := units{o.layout, o.namespaces}.counts(o.objects)
	if least := slices.Min(counts); least < 50 {
		t.Errorf("a slot has %d objects, a hundred would be even: %v", least, counts)
	}
	if a, b := uidOf(1), uidOf(2); a == b || len(a) != 36 {
		t.Errorf("uids %s and %s", a, b)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for _, o := range []options{
		{},
		{objects: 1, namespaces: namespaces{2, "name"}, updates: 1, rounds: 1, kind: "pods"},
		{objects: 1, namespaces: namespaces{1, "n%d"}, updates: 1, rounds: 1, kind: "widgets"},
	} {
		if err := o.check(); err == nil {
			t.Errorf("no error for %+v", o)
		}
	}
}
