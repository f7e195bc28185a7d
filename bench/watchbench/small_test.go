package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/testlimit"
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

// TestSmall runs each kind of peer on few objects, to check that the benchmarks work.
func TestSmall(t *testing.T) {
	o := options{
		objects: 300, rounds: 1, events: 300, rate: 200, blocked: 2000, span: 500 * time.Millisecond, limit: testlimit.Wait,
		settle: 100 * time.Millisecond,
		peers:  []string{"fairlead, protobuf", "fairlead, metadata", "client-go typed", "bound: keep the bytes"},
		out:    filepath.Join(t.TempDir(), "page.md"), buckets: 100,
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
			t.Errorf("%s got %v events, want 300", peer, n)
		}
	}
	page, err := os.ReadFile(o.out)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| S1 | sync CPU, against typed |", "in pages of 500", "| S8 | the writer's p99"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("no %q in:\n%s", want, page)
		}
	}
}

// TestSmallAdapter: the set "adapter" measures its default peers, and has bars of its own.
func TestSmallAdapter(t *testing.T) {
	o := options{
		objects: 300, rounds: 1, events: 300, rate: 200, span: 100 * time.Millisecond,
		limit: testlimit.Wait, settle: 100 * time.Millisecond, buckets: 10, set: adapterSet,
		rows: []string{"S3", "S5", "S6", "HANDLERS"},
	}
	tables, err := compare(t.Context(), o, func(s string) { t.Log(s) })
	if err != nil {
		t.Fatal(err)
	}
	for _, peer := range []string{
		"stock typed", "adapter typed", "stock unstructured", "adapter unstructured", "adapter typed, no copies",
	} {
		v := tables.values[peer]
		if n := median(v["S1.objects"]); n != 300 {
			t.Errorf("%s has %v objects, want 300", peer, n)
		}
		if n := median(v["S6.listed"]); n < 10 || n > 60 {
			t.Errorf("%s lists %v objects of a tenth of 300", peer, n)
		}
	}
	var out strings.Builder
	tables.write(&out)
	for _, want := range []string{"| S2 | resident, unstructured |", "| HANDLERS | goroutines of ten more handlers |"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}

// TestGuard stops children that take too much memory or time. Other children and the tables are not affected.
func TestGuard(t *testing.T) {
	for _, c := range []struct {
		reason  string
		reserve int64
		limit   time.Duration
		want    string
	}{
		{
			reason: "no machine has that much spare memory", reserve: 1 << 60, limit: testlimit.Wait,
			want: "| client-go metadata | out of memory at ",
		},
		{reason: "no child is that fast", limit: time.Nanosecond, want: "| client-go metadata | not within 1ns |"},
	} {
		o := options{
			objects: 20, rounds: 2, events: 20, limit: c.limit, reserve: c.reserve,
			peers: []string{"client-go metadata"}, rows: []string{"S1"},
		}
		tables, err := compare(t.Context(), o, func(s string) { t.Log(s) })
		if err != nil {
			t.Fatalf("%s: %v", c.reason, err)
		}
		var out strings.Builder
		tables.write(&out)
		if !strings.Contains(out.String(), c.want) {
			t.Errorf("%s: no %q in:\n%s", c.reason, c.want, out.String())
		}
	}
}

func TestOnPage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ reason, page, want string }{
		{"a new file", "", "new"},
		{"no markers: the whole file", "old", "new"},
		{
			"only the text between the markers", "# A\n" + pageBegin + "old\n" + pageEnd + "B\n",
			"# A\n" + pageBegin + "\nnew\n" + pageEnd + "B\n",
		},
		{"a single marker does not count", "# A\n" + pageBegin + "old\n", "new"},
	} {
		if got := string(onPage([]byte(c.page), []byte("new"))); got != c.want {
			t.Errorf("%s: page is %q, want %q", c.reason, got, c.want)
		}
	}
}
