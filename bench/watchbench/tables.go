package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// tables collect the results and print them as Markdown.
type tables struct {
	o      options
	began  time.Time
	took   time.Duration
	values map[string]map[string][]float64 // peer → row.metric → one value per round
	notes  map[string]map[string]string    // peer → row → reason for a missing value
}

func newTables(o options) *tables {
	return &tables{
		o: o, began: time.Now(), values: map[string]map[string][]float64{},
		notes: map[string]map[string]string{},
	}
}

// note records why a row could not be measured.
func (t *tables) note(peer, row string, err error) {
	if t.notes[peer] == nil {
		t.notes[peer] = map[string]string{}
	}
	text := "failed"
	if e, ok := errors.AsType[ended](err); ok {
		text = string(e)
	}
	t.notes[peer][row] = text
}

func (t *tables) failed(peer, row string) bool { return t.notes[peer][row] != "" }

func (t *tables) add(peer string, values map[string]float64) {
	if t.values[peer] == nil {
		t.values[peer] = map[string][]float64{}
	}
	for k, v := range values {
		t.values[peer][k] = append(t.values[peer][k], v)
	}
}

// Markers of the part of a page that has the results.
const (
	pageBegin = "<!-- measured: begin -->\n"
	pageEnd   = "<!-- measured: end -->\n"
)

// save writes the tables to a file, or between its markers if it has them. An empty path is ignored.
func (t *tables) save(path string) error {
	if path == "" {
		return nil
	}
	var b bytes.Buffer
	t.write(&b)
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(path, onPage(old, b.Bytes()), 0o644)
}

// onPage replaces the text between the markers of a page. Without markers it returns only the results.
func onPage(page, measured []byte) []byte {
	head, rest, begins := bytes.Cut(page, []byte(pageBegin))
	_, tail, ends := bytes.Cut(rest, []byte(pageEnd))
	if !begins || !ends {
		return measured
	}
	return slices.Concat(head, []byte(pageBegin+"\n"), measured, []byte("\n"+pageEnd), tail)
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// column is one metric of a table.
type column struct {
	title, key string
	format     func(float64) string
}

func seconds(v float64) string { return fmt.Sprintf("%.2f s", v) }
func nanos(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.2f ms", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%.2f µs", v/1e3)
	}
	return fmt.Sprintf("%.0f ns", v)
}
func times(v float64) string { return nanos(v * 1e9) }
func kilo(v float64) string  { return fmt.Sprintf("%.1f KB", v/1e3) }
func mega(v float64) string  { return fmt.Sprintf("%.0f MB", v/1e6) }
func count(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f,%03.0f", float64(int(v)/1000), float64(int(v)%1000))
	}
	return fmt.Sprintf("%.3g", v)
}

func (t *tables) write(w io.Writer) {
	fmt.Fprintf(w, "%d objects of each kind, rounds: %d, %s, %d cores, %s, took %s. Median (minimum–maximum).\n\n",
		t.o.objects, t.o.rounds,
		t.began.UTC().Format(time.DateOnly), runtime.NumCPU(), runtime.Version(), t.took.Round(time.Second))
	perObject := func(v float64) string { return fmt.Sprintf("%.0f B", v/float64(t.o.objects)) }
	t.table(w, "S1, S2, S2p: until everything is in the cache, by WatchList", []column{
		{"time", "S1.sync", seconds},
		{"CPU", "S1.cpu", seconds},
		{"CPU, background included", "S1.cpuSettled", seconds},
		{"resident per object", "S1.resident", perObject},
		{"peak", "S1.peak", mega},
		{"then read every object", "S1.readAll", seconds},
		{"both", "S1.usable", seconds},
		{"CPU of both", "S1.usableCPU", seconds},
	})
	for _, r := range [][2]string{{"LIST", "in one answer"}, {"PAGED", "in pages of 500"}} {
		t.table(w, "S1: the same by LIST, "+r[1]+" (one round)",
			[]column{{"time", r[0] + ".sync", seconds}, {"CPU", r[0] + ".cpu", seconds}, {"peak", r[0] + ".peak", mega}})
	}
	t.table(w, fmt.Sprintf("S3: %d changes through to a handler that reads the whole object",
		min(t.o.events, t.o.objects)), []column{
		{"events per second", "S3.rate", count},
		{"per CPU second", "S3.perCPU", count},
		{"header only, per second", "S3header.rate", count},
		{"header only, per CPU second", "S3header.perCPU", count},
		{"allocated for each event", "S3.bytesEach", kilo},
		{"allocations for each event", "S3.allocsEach", count},
	})
	t.table(w, fmt.Sprintf("S4: from the write to the handler at %d events per second, for %s", t.o.rate, t.o.span),
		[]column{
			{"p50", "S4.p50", times},
			{"p99", "S4.p99", times},
			{"max", "S4.max", times},
			{"CPU for each event", "S4.cpuEach", times},
			{"collections", "S4.collections", count},
		})
	t.table(w, "S5: list again after a 410, nothing has changed",
		[]column{{"CPU", "S5.cpu", seconds}, {"peak over rest", "S5.growth", mega}, {"handler calls", "S5.calls", count}})
	t.table(w, "S6: reads of the cache", []column{
		{"Get, read before", "S6.get", nanos}, {"allocations", "S6.getAllocs", count}, {
			"Get, not read before", "S6.getCold", nanos,
		}, {"List by index", "S6.list", nanos}, {"objects listed", "S6.listed", count},
	})
	t.table(w, fmt.Sprintf("S7: a handler is blocked during %d updates of 1,000 keys (one round)", t.o.blocked),
		[]column{{"memory grows by", "S7.growth", mega}})
	t.table(w, fmt.Sprintf("S8: readers are busy while %d updates per second arrive", t.o.rate*5/2),
		[]column{{"Get p99", "S8.getP99", times}, {"Get max", "S8.getMax", times}, {
			"the writer: p99 of one change", "S8.applyP99", times,
		}, {"max", "S8.applyMax", times}, {"event p50", "S8.p50", times}, {"event p99", "S8.p99", times}})
	t.table(w, fmt.Sprintf("Goroutines that %d more handlers of an informer take at rest", moreHandlers),
		[]column{{"goroutines", "HANDLERS.goroutines", count}})
	t.bars(w)
}

// table writes a line for each peer that has a value or a note. Without any line it writes no table.
func (t *tables) table(w io.Writer, title string, columns []column) {
	var lines strings.Builder
	for _, spec := range specs {
		said := false
		line := "| " + spec.name + " |"
		for _, c := range columns {
			text := cell(t.values[spec.name][c.key], c.format)
			if row, _, _ := strings.Cut(c.key, "."); text == "" {
				text = t.notes[spec.name][row]
			}
			said = said || text != ""
			line += " " + text + " |"
		}
		if said {
			fmt.Fprintln(&lines, line)
		}
	}
	if lines.Len() == 0 {
		return
	}
	fmt.Fprintf(w, "### %s\n\n| peer |", title)
	for _, c := range columns {
		fmt.Fprintf(w, " %s |", c.title)
	}
	fmt.Fprintf(w, "\n|---|%s\n%s\n", strings.Repeat("---|", len(columns)), lines.String())
}

func cell(v []float64, format func(float64) string) string {
	switch len(v) {
	case 0:
		return ""
	case 1:
		return format(v[0])
	}
	return fmt.Sprintf("%s (%s–%s)", format(median(v)), format(slices.Min(v)), format(slices.Max(v)))
}

// bar is a goal of the design.
type bar struct {
	row, text    string
	mine, theirs string
	key, other   string  // metrics; other "": the same
	want         float64 // minimum of theirs/mine, or with perSecond of mine/theirs
	perSecond    bool
}

func bars() []bar {
	const pb, js, wi = "fairlead, protobuf", "fairlead, JSON", "fairlead, JSON, widgets"
	const ty, dy, dw = "client-go typed", "client-go dynamic", "client-go dynamic, widgets"
	return []bar{
		{row: "S1", text: "sync time, JSON, against dynamic", mine: js, theirs: dy, key: "S1.sync", want: 12},
		{row: "S1", text: "sync CPU, JSON, against dynamic", mine: js, theirs: dy, key: "S1.cpu", want: 12},
		{row: "S1", text: "sync time, against typed", mine: pb, theirs: ty, key: "S1.sync", want: 3},
		{row: "S1", text: "sync CPU, against typed", mine: pb, theirs: ty, key: "S1.cpu", want: 3},
		{
			row: "S1", text: "sync time, JSON, against the bound", mine: js, theirs: "bound: keep the bytes", key: "S1.sync",
			want: 0.4,
		},
		{
			row: "S1", text: "sync CPU, JSON, against the bound", mine: js, theirs: "bound: keep the bytes", key: "S1.cpu",
			want: 0.4,
		},
		{row: "S2", text: "resident, against typed", mine: pb, theirs: ty, key: "S1.resident", want: 10},
		{row: "S2", text: "resident, JSON, against dynamic", mine: js, theirs: dy, key: "S1.resident", want: 25},
		{
			row: "S2p", text: "peak over resident, protobuf", mine: pb, theirs: pb, key: "S1.peak", other: "S1.resident",
			want: 0.5,
		},
		{row: "S2p", text: "peak over resident, JSON", mine: js, theirs: js, key: "S1.peak", other: "S1.resident", want: 0.5},
		{
			row: "S3", text: "widgets, whole object, against dynamic", mine: wi, theirs: dw, key: "S3.rate", want: 8,
			perSecond: true,
		},
		{
			row: "S3", text: "widgets, header only, against dynamic", mine: wi, theirs: dw, key: "S3header.rate",
			other: "S3.rate", want: 25, perSecond: true,
		},
		{
			row: "S3", text: "pods, whole object, against typed", mine: pb, theirs: ty, key: "S3.rate", want: 1.5,
			perSecond: true,
		},
		{
			row: "S3", text: "pods, header only, against typed", mine: pb, theirs: ty, key: "S3header.rate", other: "S3.rate",
			want: 3, perSecond: true,
		},
		{row: "S4", text: "p50, against typed", mine: pb, theirs: ty, key: "S4.p50", want: 1},
		{row: "S4", text: "p99, JSON, against dynamic", mine: js, theirs: dy, key: "S4.p99", want: 2},
		{row: "S5", text: "relist CPU, against typed", mine: pb, theirs: ty, key: "S5.cpu", want: 6},
		{row: "S5", text: "relist: memory over rest", mine: pb, theirs: pb, key: "S5.growth", other: "S5.resting", want: 20},
		{
			row: "S6", text: "Get, against controller-runtime", mine: pb, theirs: "controller-runtime typed", key: "S6.get",
			want: 50,
		},
		{row: "S6", text: "Get, against the lister", mine: pb, theirs: ty, key: "S6.get", want: 3},
		{
			row: "S6", text: "List by index, against controller-runtime", mine: pb, theirs: "controller-runtime typed",
			key: "S6.list", want: 10,
		},
	}
}

// adapterBars are the goals of the set adapter.
func adapterBars() []bar {
	const st, su, sn = "stock typed", "stock unstructured", "stock typed, no copies"
	const at, au, an = "adapter typed", "adapter unstructured", "adapter typed, no copies"
	return []bar{
		{row: "S2", text: "resident, typed", mine: at, theirs: st, key: "S1.resident", want: 4},
		{row: "S2", text: "resident, unstructured", mine: au, theirs: su, key: "S1.resident", want: 10},
		{row: "S3", text: "events per second, typed", mine: at, theirs: st, key: "S3.rate", want: 1, perSecond: true},
		{row: "S3", text: "events per second, unstructured", mine: au, theirs: su, key: "S3.rate", want: 3, perSecond: true},
		{row: "S6", text: "Get with a copy, hot", mine: at, theirs: st, key: "S6.get", want: 1},
		{row: "S6", text: "Get without a copy, hot", mine: an, theirs: sn, key: "S6.get", want: 1},
		{row: "S6", text: "List by index with copies, hot", mine: at, theirs: st, key: "S6.list", want: 1},
		{row: "S6", text: "List by index without copies, hot", mine: an, theirs: sn, key: "S6.list", want: 1},
	}
}

func (t *tables) bars(w io.Writer) {
	fmt.Fprint(w, "### The bars of the design\n\n| row | what | ratio | bar | |\n|---|---|---|---|---|\n")
	promised := bars()
	if t.o.set == adapterSet {
		promised = adapterBars()
	}
	for _, b := range promised {
		if b.other == "" {
			b.other = b.key
		}
		mine, theirs := median(t.values[b.mine][b.key]), median(t.values[b.theirs][b.other])
		if mine == 0 || theirs == 0 {
			for peer, key := range map[string]string{b.mine: b.key, b.theirs: b.other} {
				row, _, _ := strings.Cut(key, ".")
				if note := t.notes[peer][row]; note != "" {
					fmt.Fprintf(w, "| %s | %s |  | %.2f | %s: %s |\n", b.row, b.text, b.want, peer, note)
				}
			}
			continue
		}
		ratio := theirs / mine
		if b.perSecond {
			ratio = mine / theirs
		}
		verdict := "met"
		if ratio < b.want {
			verdict = "**missed**"
		}
		fmt.Fprintf(w, "| %s | %s | %.2f | %.2f | %s |\n", b.row, b.text, ratio, b.want, verdict)
	}
	if t.o.set == adapterSet {
		t.absolute(w, "S5", "relist of unchanged objects: calls of a handler", t.values["adapter typed"]["S5.calls"], 0)
		goroutines := t.values["adapter typed"]["HANDLERS.goroutines"]
		t.absolute(w, "HANDLERS", "goroutines of ten more handlers", goroutines, 0)
		return
	}
	const pb = "fairlead, protobuf"
	million := func(v []float64) (out []float64) { // extrapolates to a million objects, in GiB
		for _, bytes := range v {
			out = append(out, bytes/float64(t.o.objects)*1e6/(1<<30))
		}
		return out
	}
	t.absolute(w, "S2", "a million pods in 1.2 GiB, protobuf (by the bytes per object)",
		million(t.values[pb]["S1.resident"]), 1.2)
	t.absolute(w, "S2", "a million pods in 1.2 GiB, JSON (by the bytes per object)",
		million(t.values["fairlead, JSON"]["S1.resident"]), 1.2)
	t.absolute(w, "S6", "Get of a hot object under 0.2 µs", t.values[pb]["S6.get"], 200)
	t.absolute(w, "S8", "Get p99 under 1 ms while 5,000 updates/s arrive", t.values[pb]["S8.getP99"], 1e-3)
	t.absolute(w, "S8", "the writer's p99 of one change under 1 ms while readers are busy", t.values[pb]["S8.applyP99"],
		1e-3)
}

func (t *tables) absolute(w io.Writer, row, text string, v []float64, most float64) {
	if len(v) == 0 {
		return
	}
	verdict := "met"
	if median(v) > most {
		verdict = "**missed**"
	}
	fmt.Fprintf(w, "| %s | %s | %.3g | %.3g | %s |\n", row, text, median(v), most, verdict)
}
