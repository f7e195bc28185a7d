package monitoringtest

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
)

// interval is the common interval of scrapes and of rule evaluations.
const interval = 30 * time.Second

// target is a process whose metrics are collected.
type target struct {
	job, pod string
	gatherer prometheus.Gatherer
}

// monitored has the samples that Prometheus collects of some programs.
type monitored struct {
	start, end time.Time
	samples    []sample // by time
}

type sample struct {
	labels labels.Labels
	at     int64
	value  float64
}

// scrape collects the metrics of targets, as Prometheus does with pods. Labels that clash with those of the target are
// renamed.
func (m *monitored) scrape(t *testing.T, targets ...target) {
	t.Helper()
	now := time.Now()
	if m.start.IsZero() {
		m.start = now
	}
	m.end = now
	for _, from := range targets {
		families, err := from.gatherer.Gather()
		if err != nil {
			t.Fatal(err)
		}
		vector, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{Timestamp: model.TimeFromUnixNano(now.UnixNano())},
			families...)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range vector {
			own := labels.NewBuilder(labels.EmptyLabels())
			for name, value := range s.Metric {
				if slices.Contains(targetLabels, string(name)) {
					name = "exported_" + name
				}
				own.Set(string(name), string(value))
			}
			own.Set("job", from.job).Set("pod", from.pod).Set("instance", from.pod+":8082").Set("namespace", "prod")
			m.samples = append(m.samples, sample{own.Labels(), now.UnixMilli(), float64(s.Value)})
		}
	}
}

var targetLabels = []string{"job", "pod", "instance", "namespace"}

// database has all samples, and an engine that evaluates expressions.
type database struct {
	monitored
	head   *tsdb.Head
	engine *promql.Engine
}

func (m *monitored) load(t *testing.T) *database {
	t.Helper()
	o := tsdb.DefaultHeadOptions()
	o.ChunkDirRoot, o.ChunkRange = filepath.Join(t.TempDir(), "head"), (24 * time.Hour).Milliseconds()
	head, err := tsdb.NewHead(nil, nil, nil, nil, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := head.Close(); err != nil {
			t.Error(err)
		}
	})
	app := head.Appender(t.Context())
	for _, s := range m.samples {
		if _, err := app.Append(0, s.labels, s.at, s.value); err != nil {
			t.Fatalf("%s: %v", s.labels, err)
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 10_000_000, Timeout: time.Minute})
	t.Cleanup(func() { _ = engine.Close() })
	return &database{*m, head, engine}
}

// eval evaluates an expression over the whole time.
func (d *database) eval(t *testing.T, expr string) promql.Matrix {
	t.Helper()
	q, err := d.engine.NewRangeQuery(t.Context(), d.queryable(), nil, expr, d.start, d.end, interval)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	defer q.Close()
	r := q.Exec(context.Background())
	if r.Err != nil {
		t.Fatalf("%s: %v", expr, r.Err)
	}
	matrix, err := r.Matrix()
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return slices.Clone(matrix)
}

func (d *database) queryable() storage.Queryable {
	return storage.QueryableFunc(func(from, until int64) (storage.Querier, error) {
		return tsdb.NewBlockQuerier(tsdb.NewRangeHead(d.head, from, until), from, until)
	})
}

// fires returns the labels for which an alert fires at some time: its expression has a value for the duration hold
// without a gap.
func (d *database) fires(t *testing.T, expr string, hold time.Duration) (firing []string) {
	t.Helper()
	for _, series := range d.eval(t, expr) {
		since, last := int64(-1), int64(-1)
		for _, p := range series.Floats {
			if last < 0 || p.T-last > interval.Milliseconds() {
				since = p.T
			}
			if last = p.T; last-since >= hold.Milliseconds() {
				firing = append(firing, series.Metric.String())
				break
			}
		}
	}
	return firing
}

func parse(t *testing.T, expr string) parser.Expr {
	t.Helper()
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return parsed
}
