package monitoringtest

import (
	"bytes"
	"encoding/json"
	"flag"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "write the PrometheusRules of the files of rules")

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

const dir = "../monitoring/"

// silent has the alerts that do not fire in this test, with the reasons.
var silent = map[string]string{
	"FairleadSharedObjectChanged":  "tests search for races that change a shared object",
	"FairleadObjectsUnreadable":    "it takes an object that a store cannot keep, or a reader decode",
	"FairleadWatchLags":            "it takes an open watch that lags by a minute",
	"FairleadFlowStuck":            "it takes a fiber that ignores its context and is preempted",
	"FairleadFlowPositionsLost":    "it takes fibers that are saved, and a file system that fails",
	"FairleadRetryBudgetExhausted": "it takes more requests than these programs make",
	"FairleadSlotsDoNotMove":       "it takes a holder that works for just the slot that is to move",
	"FairleadWebhookQuarantined":   "it takes a process that dies",
	"FairleadCallsQueue":           "it takes receivers that do not answer, which would stop the clock",
}

// absent has the metrics without series, because their cause does not occur in this test.
var absent = map[string]bool{
	"fairlead_reconcile_map_errors_total": true, "fairlead_http_connections_closed_total": true,
}

// alerts returns the alerts of both files.
func alerts(t *testing.T) (all []rulefmt.Rule) {
	t.Helper()
	for _, file := range []string{"library.rules.yaml", "controller.rules.yaml"} {
		groups, errs := rulefmt.ParseFile(dir+file, false, model.UTF8Validation, parser.NewParser(parser.Options{}),
			slog.New(slog.DiscardHandler))
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		for _, g := range groups.Groups {
			all = append(all, g.Rules...)
		}
	}
	return all
}

// panel is a panel of the board, with its queries.
type panel struct {
	Title, Type string
	Targets     []struct{ Expr string }
}

type board struct {
	Panels     []panel
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
}

func loadBoard(t *testing.T) (b board) {
	t.Helper()
	text, err := os.ReadFile(dir + "board.json")
	if err == nil {
		err = json.Unmarshal(text, &b)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// filled returns a query as Grafana sends it: with all values of each variable, and the interval that it computes from
// that of scrapes.
func filled(b board, expr string) string {
	for _, v := range b.Templating.List {
		expr = strings.ReplaceAll(expr, "$"+v.Name+`"`, `.*"`)
	}
	return strings.ReplaceAll(expr, "$__rate_interval", "2m")
}

// TestQueries runs healthy and troubled programs, and evaluates the board and the alerts over the collected metrics.
func TestQueries(t *testing.T) {
	t.Parallel()
	var well, ill *monitored
	t.Run("Run", func(t *testing.T) { // both in parallel
		t.Run("Well", func(t *testing.T) {
			t.Parallel()
			well = play(t, 40*time.Minute, 0, 0)
		})
		t.Run("Ill", func(t *testing.T) {
			t.Parallel()
			ill = play(t, 10*time.Minute, 50*time.Minute, 122*time.Minute)
		})
	})
	if t.Failed() {
		return
	}
	healthy, broken := well.load(t), ill.load(t)
	known := listed(t)

	b := loadBoard(t)
	asked := 0
	for _, p := range b.Panels {
		for _, target := range p.Targets {
			asked++
			expr := filled(b, target.Expr)
			if strings.Contains(expr, "$") {
				t.Errorf("%s: a variable is left: %s", p.Title, expr)
				continue
			}
			check(t, known, expr)
			if slices.ContainsFunc(slices.Collect(maps.Keys(selectors(parse(t, expr)))),
				func(m string) bool { return absent[m] }) {
				continue
			}
			if len(healthy.eval(t, expr)) == 0 && len(broken.eval(t, expr)) == 0 {
				t.Errorf("panel %q shows nothing: %s", p.Title, expr)
			}
		}
	}
	if asked < 80 {
		t.Errorf("only %d queries were found in the board", asked)
	}
	for _, v := range b.Templating.List {
		m := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`).FindStringSubmatch(v.Definition)
		if v.Type != "query" {
			continue
		}
		if m == nil {
			t.Errorf("variable %s: %s", v.Name, v.Definition)
			continue
		}
		check(t, known, "sum by ("+m[2]+") ("+filled(b, m[1])+")")
		if len(healthy.eval(t, filled(b, m[1]))) == 0 {
			t.Errorf("variable %s has no values", v.Name)
		}
	}

	for _, rule := range alerts(t) {
		check(t, known, rule.Expr)
		if firing := healthy.fires(t, rule.Expr, time.Duration(rule.For)); len(firing) > 0 {
			t.Errorf("%s fires without trouble: %v", rule.Alert, firing)
		}
		firing := broken.fires(t, rule.Expr, time.Duration(rule.For))
		why, expected := silent[rule.Alert]
		switch {
		case expected && len(firing) > 0:
			t.Errorf("%s fires, but is listed as silent: %s", rule.Alert, why)
		case !expected && len(firing) == 0:
			t.Errorf("%s does not fire in trouble: %s", rule.Alert, rule.Expr)
		}
	}
}

// TestAlertsSayWhatToDo: each alert has a severity, texts, and an existing section of the documentation.
func TestAlertsSayWhatToDo(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	anchors := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			title = strings.ReplaceAll(strings.ToLower(strings.TrimSpace(title)), ",", "")
			anchors[strings.ReplaceAll(title, " ", "-")] = true
		}
	}
	names := map[string]bool{}
	for _, rule := range alerts(t) {
		if names[rule.Alert] {
			t.Errorf("two alerts are called %s", rule.Alert)
		}
		names[rule.Alert] = true
		if !slices.Contains([]string{"critical", "warning", "info"}, rule.Labels["severity"]) {
			t.Errorf("%s: severity %q", rule.Alert, rule.Labels["severity"])
		}
		if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
			t.Errorf("%s says nothing", rule.Alert)
		}
		page, anchor, _ := strings.Cut(rule.Annotations["runbook_url"], "#")
		if !strings.HasSuffix(page, "/docs/troubleshooting.md") || !anchors[anchor] {
			t.Errorf("%s leads nowhere: %s", rule.Alert, rule.Annotations["runbook_url"])
		}
	}
	for name := range maps.Keys(silent) {
		if !names[name] {
			t.Errorf("there is no alert %s", name)
		}
	}
}

// TestPrometheusRules: the objects for the Prometheus operator have the rules of the files. go test -run
// TestPrometheusRules -update writes them.
func TestPrometheusRules(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"library", "controller"} {
		plain, err := os.ReadFile(dir + name + ".rules.yaml")
		if err != nil {
			t.Fatal(err)
		}
		var want bytes.Buffer
		want.WriteString("# Written from " + name +
			".rules.yaml by: go -C deploy/monitoringtest test -run TestPrometheusRules -update .\n" +
			"apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: fairlead-" + name + "\nspec:\n")
		for line := range bytes.Lines(plain) {
			if !bytes.HasPrefix(line, []byte("#")) {
				want.WriteString("  " + string(line))
			}
		}
		file := dir + "operator/" + name + ".yaml"
		if *update {
			if err := os.WriteFile(file, want.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want.Bytes()) {
			t.Errorf("%s is not up to date (%v): go -C deploy/monitoringtest test -run TestPrometheusRules -update .", file, err)
		}
	}
}
