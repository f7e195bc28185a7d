package monitoringtest

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// listed returns the labels of the metrics in docs/metrics.md, which a test of the root module compares with the
// registries. It adds the used metrics of Prometheus' client library.
func listed(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string][]string{
		"process_resident_memory_bytes": nil, "process_cpu_seconds_total": nil, "go_memstats_heap_inuse_bytes": nil,
		"go_goroutines": nil,
	}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 6 || !strings.HasPrefix(cells[1], " `fairlead_") {
			continue
		}
		name, kind := strings.Trim(cells[1], " `"), strings.TrimSpace(cells[2])
		names := strings.FieldsFunc(cells[3], func(r rune) bool { return strings.ContainsRune(" ,`-", r) })
		if kind != "histogram" {
			known[name] = names
			continue
		}
		known[name+"_bucket"], known[name+"_sum"], known[name+"_count"] = append(names, "le"), names, names
	}
	return known
}

// check reports the metrics and labels of an expression that do not exist.
func check(t *testing.T, known map[string][]string, expr string) {
	t.Helper()
	usable := func(metric string) []string {
		own := slices.Clone(known[metric])
		for i, name := range own {
			if slices.Contains(targetLabels, name) {
				own[i] = "exported_" + name
			}
		}
		return append(own, targetLabels...)
	}
	var check func(e parser.Node)
	check = func(e parser.Node) {
		switch e := e.(type) {
		case *parser.VectorSelector:
			if _, ok := known[e.Name]; !ok {
				t.Errorf("there is no metric %s: %s", e.Name, expr)
			}
			for _, m := range e.LabelMatchers {
				if m.Name != model.MetricNameLabel && !slices.Contains(usable(e.Name), m.Name) {
					t.Errorf("%s has no label %s: %s", e.Name, m.Name, expr)
				}
			}
		case *parser.AggregateExpr:
			for name := range selectors(e.Expr) {
				for _, by := range e.Grouping {
					if !slices.Contains(usable(name), by) {
						t.Errorf("%s has no label %s: %s", name, by, expr)
					}
				}
			}
		}
		for child := range parser.ChildrenIter(e) {
			check(child)
		}
	}
	check(parse(t, expr))
}

// selectors returns the metrics that an expression reads.
func selectors(e parser.Node) map[string]bool {
	names := map[string]bool{}
	if s, ok := e.(*parser.VectorSelector); ok {
		names[s.Name] = true
	}
	for child := range parser.ChildrenIter(e) {
		maps.Copy(names, selectors(child))
	}
	return names
}
