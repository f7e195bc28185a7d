package simulate

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// write writes files to a new directory.
func write(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"

// The steps of a workload have their names in the report. Paths are relative to the file.
func TestReadWorkload(t *testing.T) {
	dir := write(t, map[string]string{"map.yaml": object, "steps.yaml": `
- apply: map.yaml
- wait: configmaps/a
  for: condition=Ready
- patch: configmaps/a
  with: {data: {k: v}}
- patch: configmaps/a
  subresource: status
  with: {phase: Done}
- wait: configmaps/a
  for: jsonpath={.status.phase}=Done
- wait: configmaps/a
  for: jsonpath={.status.phase}
- wait: configmaps/a
  for: condition=Stalled=False
- wait: configmaps/b
  for: create
- sleep: 1500ms
- delete: configmaps/a
- wait: configmaps/a
  for: delete
`})
	steps, err := readWorkload(filepath.Join(dir, "steps.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range steps {
		names = append(names, strings.ReplaceAll(s.Name, dir+"/", ""))
	}
	want := "apply map.yaml; await Ready of configmaps/a; patch configmaps/a; patch the status of configmaps/a; " +
		"await {.status.phase} of configmaps/a; " +
		"await {.status.phase} of configmaps/a; await Stalled=False of configmaps/a; await configmaps/b; wait 1.5s; " +
		"delete configmaps/a; await the end of configmaps/a"
	if got := strings.Join(names, "; "); got != want {
		t.Errorf("the steps are\n%s\nwant\n%s", got, want)
	}
}

// A mistake in the workload names the step.
func TestMistakesInWorkload(t *testing.T) {
	for text, says := range map[string]string{
		"apply: a.yaml":  "it must be a list of steps",
		"- aply: a.yaml": `unknown field "aply"`,
		"- {}":           "step 1 of the workload",
		"- sleep: 1s\n- {apply: map.yaml, delete: pods/a}": "step 2 of the workload",
		"- {apply: map.yaml, sleep: 1s}":                   "exactly one of apply, patch, delete, wait and sleep",
		"- apply: other.yaml":                              "cannot read the objects to apply",
		"- patch: pods/a":                                  "patch needs it",
		"- {delete: pods/a, for: delete}":                  "for belongs to wait",
		"- wait: pods/a":                                   "wait needs it",
		"- {wait: pods/a, for: ready}":                     "it is not condition=TYPE, ",
		"- {wait: pods/a, for: 'jsonpath={.a}b'}":          "jsonpath={PATH}=VALUE, create or delete",
		"- {wait: pods/a, for: 'jsonpath={[}=1'}":          "cannot read the path",
		"- {patch: pods/a, with: {}, subresource: scale}":  "can only be status",
		"- sleep: soon":                                    "invalid duration",
	} {
		dir := write(t, map[string]string{"map.yaml": object, "steps.yaml": text})
		if _, err := readWorkload(filepath.Join(dir, "steps.yaml")); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: the error is %v, want %q", text, err, says)
		}
	}
}

// Wrong flags are reported before a control plane starts.
func TestUsage(t *testing.T) {
	dir := write(t, map[string]string{
		"steps.yaml": "- sleep: 1s\n", "crd.yaml": object, "plan.json": "{", "empty.yaml": "",
		"old.yaml": "kind: CustomResourceDefinition\napiVersion: apiextensions.k8s.io/v1beta1\n" +
			"metadata: {name: as.example}\n",
	})
	steps := "--workload=" + filepath.Join(dir, "steps.yaml")
	for args, says := range map[string]string{
		steps:                      "the command of the controller is missing",
		"-- true":                  "--workload is missing",
		"--workload=missing -- sh": "cannot read the workload",
		"--workload=" + filepath.Join(dir, "empty.yaml") + " -- sh":            "has no steps",
		steps + " -- no-such-program":                                          "cannot run the command",
		steps + " --out=" + filepath.Join(dir, "crd.yaml", "found") + " -- sh": "cannot create the directory of the findings",
		steps + " --faults=storm -- sh":                                        `there is no class of faults "storm"`,
		steps + " --for=-1s -- sh":                                             "--for must be positive",
		steps + " --schedules=-1 -- sh":                                        "--schedules not negative",
		steps + " --crds=" + filepath.Join(dir, "crd.yaml") + " -- sh":         "there is no CustomResourceDefinition",
		steps + " --crds=" + filepath.Join(dir, "old.yaml") + " -- sh":         "it must be apiextensions.k8s.io/v1",
		steps + " --given=" + filepath.Join(dir, "missing") + " -- sh":         "cannot read the objects of --given",
		steps + " --replay=" + filepath.Join(dir, "plan.json") + " -- sh":      "cannot decode the plan",
		steps + " --replay=" + filepath.Join(dir, "missing.json") + " -- sh":   "cannot read the plan to replay",
	} {
		cmd := NewCommand(cli.Streams{Out: io.Discard, Err: &bytes.Buffer{}})
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(strings.Fields(args))
		err := cmd.ExecuteContext(t.Context())
		if usage := new(cli.UsageError); !errors.As(err, &usage) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: the error is %v, want a usage error with %q", args, err, says)
		}
	}
}

// A plan is replayed by a line that can be pasted into a shell.
func TestAgain(t *testing.T) {
	o := &options{workload: "steps.yaml", crds: "crds", given: "settings", ignore: []string{"status.at"}}
	want := `fairlead simulate --replay '{"seed":1}' --workload steps.yaml --crds crds --given settings ` +
		`--ignore status.at -- bin/manager '-a b'`
	if got := o.again(`{"seed":1}`, []string{"bin/manager", "-a b"}); got != want {
		t.Errorf("the line is\n%s\nwant\n%s", got, want)
	}
}
