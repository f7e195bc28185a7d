package main

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"
)

// config identifies comparable results.
type config struct {
	gate bool
	n    int
}

// table has the results by config.
type table struct {
	o       options
	results map[config][]result
	order   []config
}

func newTable(o options, results []result) *table {
	t := &table{o: o, results: map[config][]result{}}
	for _, r := range results {
		c := config{r.gate, r.n}
		if t.results[c] == nil {
			t.order = append(t.order, c)
		}
		t.results[c] = append(t.results[c], r)
	}
	return t
}

// median returns the median of a value over the rounds, or NaN without results.
func (t *table) median(c config, of func(result) float64) float64 {
	var v []float64
	for _, r := range t.results[c] {
		v = append(v, of(r))
	}
	if len(v) == 0 {
		return math.NaN()
	}
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// most returns the maximum of a value over the replicas.
func most(of func(share) float64) func(result) float64 {
	return func(r result) float64 {
		v := 0.0
		for _, s := range r.shares {
			v = max(v, of(s))
		}
		return v
	}
}

func total(of func(share) float64) func(result) float64 {
	return func(r result) (v float64) {
		for _, s := range r.shares {
			v += of(s)
		}
		return v
	}
}

func resident(s share) float64 { return float64(s.after) }
func grown(s share) float64    { return float64(s.after - s.before) }

func write(w io.Writer, o options, results []result, began time.Time) {
	t := newTable(o, results)
	fmt.Fprintf(w, "%d %s in %d namespaces, by %s, %d updates; rounds: %d; %s, %d cores, %s, took %s.\n",
		o.objects, o.kind, min(o.namespaces.Count, o.objects), o.layout.By, o.updates, o.rounds,
		began.UTC().Format(time.DateOnly), runtime.NumCPU(),
		runtime.Version(), time.Since(began).Round(time.Second))
	if len(results) == 0 {
		return
	}
	t.start(w)
	if o.balance {
		t.balance(w)
	}
	t.events(w)
	if o.takeovers {
		t.moves(w)
	}
	t.bars(w)
	raw(w, results)
}

func (t *table) rows(w io.Writer, title string, columns []string, row func(config) []string) {
	fmt.Fprintf(w, "\n### %s\n\n| feature | replicas | %s |\n|%s\n", title, strings.Join(columns, " | "),
		strings.Repeat("---|", len(columns)+2))
	for _, c := range t.order {
		if cells := row(c); cells != nil {
			fmt.Fprintf(w, "| %s | %d | %s |\n", onOff(c.gate), c.n, strings.Join(cells, " | "))
		}
	}
}

func (t *table) start(w io.Writer) {
	t.rows(w, "Start and memory", []string{
		"until in sync", "objects that a replica holds, most", "read from the wire, all replicas", "resident, most",
		"of that of one", "resident without the empty process, most", "of that of one",
	}, func(c config) []string {
		one := config{c.gate, 1}
		return []string{
			seconds(t.median(c, func(r result) float64 { return r.sync.Seconds() })),
			count(t.median(c, most(func(s share) float64 { return float64(s.objects) }))),
			count(t.median(c, total(func(s share) float64 { return float64(s.objectsRead) }))) + " objects, " +
				mega(t.median(c, total(func(s share) float64 { return float64(s.bytesRead) }))),
			mega(t.median(c, most(resident))),
			percent(t.median(c, most(resident)) / t.median(one, most(resident))),
			mega(t.median(c, most(grown))),
			percent(t.median(c, most(grown)) / t.median(one, most(grown))),
		}
	})
}

func (t *table) balance(w io.Writer) {
	t.rows(w, "Boundaries of the slots", []string{
		"last change after", "changes", "of the objects a replica holds, most",
	}, func(c config) []string {
		if c.n == 1 {
			return nil
		}
		return []string{
			seconds(t.median(c, func(r result) float64 { return r.balanced.Seconds() })),
			count(t.median(c, func(r result) float64 { return float64(r.changes) })),
			percent(t.median(c, most(func(s share) float64 { return float64(s.objects) })) / float64(t.o.objects)),
		}
	})
}

func (t *table) received(s share) float64 { return float64(s.received) / float64(t.o.updates) }

func (t *table) serverPerEvent(c config) float64 {
	return t.median(c, func(r result) float64 { return r.server.Seconds() / float64(r.updates) })
}

func (t *table) events(w io.Writer) {
	t.rows(w, fmt.Sprintf("Events of %d updates", t.o.updates), []string{
		"received by a replica, most", "handed on by a replica, most", "observed by all", "read by a replica, most",
		"processor time of a replica per update, most", "of all replicas", "of kube-apiserver per update",
		"resident, kube-apiserver",
	}, func(c config) []string {
		updates := float64(t.o.updates)
		used := func(s share) float64 { return s.cpu.Seconds() / updates }
		return []string{
			percent(t.median(c, most(t.received))),
			percent(t.median(c, most(func(s share) float64 { return float64(s.given) / updates }))),
			percent(t.median(c, total(func(s share) float64 { return float64(s.observed) / updates }))),
			mega(t.median(c, most(func(s share) float64 { return float64(s.bytes) }))),
			micros(t.median(c, most(used))), micros(t.median(c, total(used))), micros(t.serverPerEvent(c)),
			mega(t.median(c, func(r result) float64 { return float64(r.serverRSS) })),
		}
	})
}

// took returns the duration of a change of members, or NaN if there was none.
func (t *table) took(c config, what string, of func(takeover) float64) float64 {
	var v float64
	if rs := t.results[c]; len(rs) == 0 || len(rs[0].takeovers) == 0 {
		return math.NaN()
	}
	v = t.median(c, func(r result) float64 {
		for _, x := range r.takeovers {
			if x.what == what {
				return of(x)
			}
		}
		return math.NaN()
	})
	return v
}

func whole(x takeover) float64 { return x.whole.Seconds() }

func (t *table) moves(w io.Writer) {
	names := []string{"SIGTERM", "SIGKILL", "SIGSTOP", "SIGCONT", "joins after SIGTERM"}
	columns := make([]string, 0, len(names)+1)
	for _, name := range names {
		columns = append(columns, name+": slots held / all observed; read")
	}
	t.rows(w, "Members that go and come", append(columns, "objects written"), func(c config) []string {
		if c.n == 1 {
			return nil
		}
		var cells []string
		for _, name := range names {
			cells = append(cells, fmt.Sprintf("%s / %s; %s",
				seconds(t.took(c, name, func(x takeover) float64 { return x.slots.Seconds() })), seconds(t.took(c, name, whole)),
				mega(t.took(c, name, func(x takeover) float64 { return float64(x.bytesRead) }))))
		}
		return append(cells, count(t.median(c, func(r result) float64 { return r.rewritten })))
	})
}

// bars compares the results of four replicas with the goals of the design.
func (t *table) bars(w io.Writer) {
	fmt.Fprint(w, "\n### Bars\n\n| of four replicas | feature | measured | bar | |\n|---|---|---|---|---|\n")
	line := func(what string, gate bool, v, bar float64, format func(float64) string) {
		if math.IsNaN(v) {
			return
		}
		verdict := "met"
		if v > bar {
			verdict = "**missed**"
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", what, onOff(gate), format(v), format(bar), verdict)
	}
	for _, gate := range []bool{true, false} {
		c, one := config{gate, 4}, config{gate, 1}
		bar := 1.0
		if gate {
			bar = 0.27
		}
		line("events that one receives", gate, t.median(c, most(t.received)), bar, percent)
		line("resident memory of one, of that of one that holds all", gate,
			t.median(c, most(resident))/t.median(one, most(resident)), 0.30, percent)
		line("objects written by moves", gate, t.median(c, func(r result) float64 { return r.rewritten }), 0, count)
		for _, x := range []struct {
			what string
			bar  float64
		}{{"SIGTERM", 1}, {"SIGKILL", 20}, {"SIGSTOP", 20}} {
			line("takeover after "+x.what, gate, t.took(c, x.what, whole), x.bar, seconds)
		}
	}
}

// raw writes all values of each replica.
func raw(w io.Writer, results []result) {
	fmt.Fprint(w, "\n### Each replica\n\n| feature | replicas | slots | objects | resident before, after | "+
		"read at the start | updates received, handed on, observed | read for them | processor time for them |\n"+
		"|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range results {
		for _, s := range r.shares {
			fmt.Fprintf(w, "| %s | %d | %d | %d | %s, %s | %d objects, %d bytes | %d, %d, %d | %d bytes | %.3f s |\n",
				onOff(r.gate), r.n, s.slots, s.objects, mega(float64(s.before)), mega(float64(s.after)), s.objectsRead,
				s.bytesRead, s.received, s.given, s.observed, s.bytes, s.cpu.Seconds())
		}
	}
}

func or(v float64, format string, by float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return fmt.Sprintf(format, v*by)
}

func seconds(v float64) string { return or(v, "%.2f s", 1) }
func mega(v float64) string    { return or(v, "%.1f MB", 1e-6) }
func micros(v float64) string  { return or(v, "%.0f µs", 1e6) }
func percent(v float64) string { return or(v, "%.1f %%", 100) }
func count(v float64) string   { return or(v, "%.0f", 1) }
