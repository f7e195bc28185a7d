package simulate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/internal/simulation/engine"
	"github.com/fairlead-io/fairlead/simulate"
)

func web() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.fairlead.io/v1", "kind": "Widget", "metadata": map[string]any{"name": "web"},
		"spec": map[string]any{"size": int64(1)},
	}}
}

func ready(w simulate.World) error {
	u := w.Object("widgets/web")
	if phase, _, _ := unstructured.NestedString(u.Object, "status", "phase"); phase != "Ready" {
		return errors.New("web is not ready")
	}
	return nil
}

// numbered returns the condition that the pool has given a number to each of these widgets.
func numbered(names ...string) func(simulate.World) error {
	return func(w simulate.World) error {
		pool := w.Object("configmaps/pool")
		for _, name := range names {
			if pool == nil {
				return errors.New("there is no pool")
			}
			if _, ok, _ := unstructured.NestedString(pool.Object, "data", name); !ok {
				return fmt.Errorf("%s has no number", name)
			}
		}
		return nil
	}
}

// Each planted bug is found in few schedules, and its repaired twin has no finding.
func TestPlantedBugs(t *testing.T) {
	make := []simulate.Part{simulate.ApplyObject(web()), simulate.Await(ready)}
	late := append(make[:2:2], simulate.Faults("late"))
	api := web()
	api.SetName("api")
	second := []simulate.Part{
		simulate.ApplyObject(web()), simulate.Await(numbered("web")), simulate.ApplyObject(api),
		simulate.Await(numbered("web", "api")),
	}
	remove := append(make[:2:2], simulate.Delete("widgets/web"), simulate.Gone("widgets/web"))
	deposed := append(make[:2:2], simulate.Wait(time.Minute), simulate.ApplyObject(api),
		simulate.Await(func(w simulate.World) error {
			if len(w.Objects("configmaps")) < 2 {
				return errors.New("api has no ConfigMap")
			}
			return nil
		}), simulate.Faults("depose"))
	for _, tt := range []struct {
		name    string
		subject func(fixed bool) simulate.Subject
		parts   []simulate.Part
		verdict engine.Verdict
		says    string
	}{
		{"CreatedTwice", createdTwice, make, engine.Left, "configmaps/default/web-*"},
		{"RandomContent", randomContent, late, engine.Left, "configmaps/default/web-*"},
		{"WaitsBriefly", waitsBriefly, late, engine.Left, "configmaps/default/web-*"},
		{"OwnName", ownName, make, engine.Left, "configmaps/default/web-*"},
		{"Leaks", leaks, remove, engine.Left, "configmaps/default/web-*"},
		{"TrustsDelete", trustsDelete, remove, engine.Exited, "DeletedFinalStateUnknown"},
		{"LostUpdate", lostUpdate, second, engine.Differs, "data.api"},
		{"ReleasedEarly", releasedEarly, remove, engine.Left, "configmaps/default/web"},
		{"HotLoop", hotLoop, make, engine.Restless, "the update of configmaps/default/web"},
		{
			"DoubledCall", doubledCall, append(make[:2:2], simulate.External(vendor, vendorService)), engine.Doubled,
			"POST vendor.example/disks size=1",
		},
		{"TwoLeaders", twoLeaders, make, engine.Left, "configmaps/default/web-*"},
		{"WorksOn", worksOn, deposed, engine.Left, "configmaps/default/api-*"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			report, err := simulate.Search(t, "bug", tt.subject(false), append(tt.parts, simulate.Schedules(40))...)
			if err != nil {
				t.Fatal(err)
			}
			if report != nil {
				if len(report.Findings) == 0 {
					t.Fatalf("no finding: %s", engine.Text(report, engine.Names{}))
				}
				f := report.Findings[0]
				if s := f.Symptoms[0]; s.Verdict != tt.verdict || !strings.Contains(s.Text, tt.says) {
					t.Errorf("the finding is %s: %s\nwant %s about %s\n%s", s.Verdict, s.Text, tt.verdict, tt.says,
						engine.Text(report, engine.Names{}))
				}
			}
			report, err = simulate.Search(t, "twin", tt.subject(true), append(tt.parts, simulate.Schedules(100))...)
			if err != nil {
				t.Fatal(err)
			}
			if report != nil && (len(report.Findings) > 0 || report.FailedCount > 0) {
				t.Errorf("the repaired twin:\n%s", engine.Text(report, engine.Names{}))
			}
		})
	}
}
