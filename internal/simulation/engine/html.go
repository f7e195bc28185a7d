package engine

import (
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
)

// Write writes the report to a directory, which it creates: report.txt, and for each finding N.json with the plan and
// N.html with the courses side by side. The files of a suspicion are called suspicion-N.
func Write(dir string, r *Report, n Names) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("cannot create the directory of the findings: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "report.txt"), []byte(Text(r, n)+"\n"), 0o666); err != nil {
		return fmt.Errorf("cannot write the report: %w", err)
	}
	for i, f := range r.Findings {
		if err := writeFiles(filepath.Join(dir, fmt.Sprint(i+1)), f); err != nil {
			return fmt.Errorf("cannot write finding %d: %w", i+1, err)
		}
	}
	for i, f := range r.Suspicions {
		if err := writeFiles(filepath.Join(dir, fmt.Sprintf("suspicion-%d", i+1)), f); err != nil {
			return fmt.Errorf("cannot write suspicion %d: %w", i+1, err)
		}
	}
	return nil
}

// writeFiles writes the plan and the page of a finding to files with this name and an extension.
func writeFiles(name string, f Finding) error {
	b, err := json.MarshalIndent(f.Plan, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(name+".json", append(b, '\n'), 0o666); err != nil {
		return err
	}
	return writeHTML(name+".html", f)
}

func writeHTML(name string, f Finding) (err error) {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	if err = HTML(file, f); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}

// row is a line of the page: the same event in both courses, or an event of one of them.
type row struct {
	Without, With *Event
	Fault         string
}

// HTML writes a page with the courses without and with faults side by side, one line for each write.
func HTML(w io.Writer, f Finding) error {
	return page.Execute(w, struct {
		Finding
		Rows []row
	}{f, sideBySide(f.Without, f.Trace)})
}

var page = template.Must(template.New("finding").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Finding: {{(index .Symptoms 0).Verdict}}</title>
<style>
body { font: 14px/1.5 system-ui, sans-serif; margin: 2em; color: #222; background: #fff }
table { border-collapse: collapse; width: 100%; table-layout: fixed }
th, td { text-align: left; vertical-align: top; padding: 2px 8px; overflow-wrap: anywhere }
tr { border-bottom: 1px solid #eee }
td { font: 12px/1.4 ui-monospace, monospace }
tr.only td { background: #fff8e0 }
tr.fault td { background: #fde7e7 }
.what { color: #a00 }
</style>
<h1>{{(index .Symptoms 0).Verdict}}</h1>
<ul>{{range .Symptoms}}<li>{{.Text}}</li>{{end}}</ul>
<h2>Faults</h2>
<ul>{{range .Plan.Faults}}<li>{{.}}</li>{{else}}<li>none</li>{{end}}</ul>
{{with .Others}}<p>Schedules with the same symptom, not replayed:</p>
<ul>{{range .}}<li>{{.Plan}} ({{.Count}} of class {{.Class}})</li>{{end}}</ul>
{{end}}
<p>Seed {{.Plan.Seed}}. Shown by {{.Shown}} of {{.Of}} replays, with the first {{.Steps}} steps of the workload.</p>
<h2>Course</h2>
<table>
<tr><th>without faults</th><th>with the fault</th></tr>
{{range .Rows}}<tr class="{{if .Fault}}fault{{else if or (not .Without) (not .With)}}only{{end}}">
<td>{{with .Without}}{{.}}{{end}}</td><td>{{with .With}}{{.}}{{end}}</td></tr>
{{end}}</table></html>
`))

// sideBySide pairs the events of two traces by a longest common subsequence of what happened.
func sideBySide(a, b []Event) []row {
	const most = 2000 // events of a trace; the table of the subsequence has the square of it
	a, b = a[:min(len(a), most)], b[:min(len(b), most)]
	length := make([][]int, len(a)+1)
	for i := range length {
		length[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i].same(b[j]) {
				length[i][j] = length[i+1][j+1] + 1
			} else {
				length[i][j] = max(length[i+1][j], length[i][j+1])
			}
		}
	}
	var rows []row
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && a[i].same(b[j]):
			rows = append(rows, row{&a[i], &b[j], b[j].injected()})
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && length[i+1][j] >= length[i][j+1]:
			rows = append(rows, row{Without: &a[i]})
			i++
		default:
			rows = append(rows, row{With: &b[j], Fault: b[j].injected()})
			j++
		}
	}
	return rows
}

// injected returns the fault at an event, and "" for a step of the workload.
func (e Event) injected() string {
	if e.Actor == "workload" {
		return ""
	}
	return e.Fault
}

// same reports whether two events are the same at different times.
func (e Event) same(other Event) bool {
	return e.Actor == other.Actor && e.Write == other.Write && e.Changed == other.Changed &&
		(e.Actor != "workload" || e.Fault == other.Fault)
}
