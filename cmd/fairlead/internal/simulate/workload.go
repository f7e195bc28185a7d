package simulate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-io/fairlead/internal/simulation/schedule"
)

// A step of the workload. Exactly one field names what is done.
type step struct {
	Apply  string   `json:"apply,omitempty"`
	Patch  string   `json:"patch,omitempty"`
	Delete string   `json:"delete,omitempty"`
	Wait   string   `json:"wait,omitempty"`
	Sleep  duration `json:"sleep,omitempty"`

	With        map[string]any `json:"with,omitempty"`        // of a patch
	Subresource string         `json:"subresource,omitempty"` // of a patch; only status
	For         string         `json:"for,omitempty"`         // of a wait
}

type duration time.Duration

// UnmarshalJSON reads a text such as 5s.
func (d *duration) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return err
	}
	v, err := time.ParseDuration(text)
	*d = duration(v)
	return err
}

// readWorkload reads the steps of a file. Paths in it are relative to its directory.
func readWorkload(path string) ([]schedule.Step, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the workload: %w", err)
	}
	var steps []step
	if err := yaml.UnmarshalStrict(content, &steps); err != nil {
		return nil, fmt.Errorf("cannot decode the workload %s: it must be a list of steps: %w", path, err)
	}
	if len(steps) == 0 {
		return nil, fmt.Errorf("the workload %s has no steps", path)
	}
	var out []schedule.Step
	for i, s := range steps {
		next, err := s.step(filepath.Dir(path))
		if err != nil {
			return nil, fmt.Errorf("step %d of the workload %s: %w", i+1, path, err)
		}
		out = append(out, next)
	}
	return out, nil
}

func (s step) step(dir string) (schedule.Step, error) {
	verbs := 0
	for _, given := range []bool{s.Apply != "", s.Patch != "", s.Delete != "", s.Wait != "", s.Sleep != 0} {
		if given {
			verbs++
		}
	}
	switch {
	case verbs != 1:
		return schedule.Step{}, errors.New("a step has exactly one of apply, patch, delete, wait and sleep")
	case (s.With != nil) != (s.Patch != ""):
		return schedule.Step{}, errors.New("with belongs to patch, and patch needs it")
	case (s.For != "") != (s.Wait != ""):
		return schedule.Step{}, errors.New("for belongs to wait, and wait needs it")
	case s.Subresource != "" && (s.Patch == "" || s.Subresource != "status"):
		return schedule.Step{}, errors.New("subresource belongs to patch, and can only be status")
	case s.Apply != "":
		if !filepath.IsAbs(s.Apply) {
			s.Apply = filepath.Join(dir, s.Apply)
		}
		objects, err := schedule.ReadObjects(s.Apply)
		if err != nil {
			return schedule.Step{}, fmt.Errorf("cannot read the objects to apply: %w", err)
		}
		return schedule.Apply("apply "+s.Apply, objects), nil
	case s.Delete != "":
		return schedule.Delete(s.Delete), nil
	case s.Sleep != 0:
		return schedule.Wait(time.Duration(s.Sleep)), nil
	case s.Wait != "":
		return waitFor(s.Wait, s.For)
	}
	patch, err := json.Marshal(s.With)
	if err != nil {
		return schedule.Step{}, err
	}
	if s.Subresource != "" {
		return schedule.PatchStatus(s.Patch, string(patch)), nil
	}
	return schedule.Patch(s.Patch, string(patch)), nil
}

// waitFor reads the condition of a wait, which is written as for kubectl wait.
func waitFor(object, condition string) (schedule.Step, error) {
	kind, rest, _ := strings.Cut(condition, "=")
	switch {
	case kind == "delete" && rest == "":
		return schedule.Gone(object), nil
	case kind == "create" && rest == "":
		return schedule.Exists(object), nil
	case kind == "condition" && rest != "":
		name, status, _ := strings.Cut(rest, "=")
		return schedule.AwaitCondition(object, name, status), nil
	case kind == "jsonpath" && strings.HasPrefix(rest, "{"):
		end := strings.LastIndex(rest, "}") + 1
		path, after := rest[:end], rest[end:]
		if value, ok := strings.CutPrefix(after, "="); ok {
			return waitForField(object, path, func(got string) bool { return got == value }, fmt.Sprintf("not %q", value))
		}
		if after == "" {
			return waitForField(object, path, func(got string) bool { return got != "" }, "and must have a value")
		}
	}
	return schedule.Step{}, fmt.Errorf("cannot read the condition %q: it is not condition=TYPE, condition=TYPE=STATUS, "+
		"jsonpath={PATH}, jsonpath={PATH}=VALUE, create or delete", condition)
}

// waitForField waits until the text of a field is accepted. wanted says which one is.
func waitForField(object, path string, accepts func(string) bool, wanted string) (schedule.Step, error) {
	field := jsonpath.New("field").AllowMissingKeys(true)
	if err := field.Parse(path); err != nil {
		return schedule.Step{}, fmt.Errorf("cannot read the path %s: %w", path, err)
	}
	return schedule.Await("await "+path+" of "+object, func(r *schedule.Run) error {
		u, err := r.Object(object)
		if err != nil {
			return err
		}
		if u == nil {
			return fmt.Errorf("%s does not exist", object)
		}
		got, err := text(field, u)
		if err == nil && !accepts(got) {
			err = fmt.Errorf("%s of %s is %q, %s", path, object, got, wanted)
		}
		return err
	}), nil
}

func text(field *jsonpath.JSONPath, u *unstructured.Unstructured) (string, error) {
	var b bytes.Buffer
	err := field.Execute(&b, u.Object)
	return b.String(), err
}
