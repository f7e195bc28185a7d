package toys

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/internal/simulation/engine"
	"github.com/fairlead-io/fairlead/simulate"
)

// A Bug is a subject, a workload that shows its bug, and what the search has to say.
type Bug struct {
	Name    string
	Subject func(fixed bool) simulate.Subject
	Parts   []simulate.Part
	Verdict engine.Verdict
	Says    string // a part of the text of the finding
}

// Bugs returns all bugs.
func Bugs() []Bug {
	create := []simulate.Part{simulate.ApplyObject(Web()), simulate.Await(Ready)}
	late := append(create[:2:2], simulate.Faults("late"))
	api := Web()
	api.SetName("api")
	second := []simulate.Part{
		simulate.ApplyObject(Web()), simulate.Await(numbered("web")), simulate.ApplyObject(api),
		simulate.Await(numbered("web", "api")),
	}
	remove := append(create[:2:2], simulate.Delete("widgets/web"), simulate.Gone("widgets/web"))
	deposed := append(create[:2:2], simulate.Wait(30*time.Second), simulate.ApplyObject(api),
		simulate.Await(func(w simulate.World) error {
			if len(w.Objects("configmaps")) < 2 {
				return errors.New("api has no ConfigMap")
			}
			return nil
		}), simulate.Faults("depose"))
	grow := []simulate.Part{
		simulate.ApplyObject(Web()), simulate.Await(Ready), simulate.Patch("widgets/web", `{"spec":{"size":2}}`),
		simulate.Await(hasSecond), simulate.Wait(time.Minute), simulate.Invariant(keepsSecond), simulate.Faults("stale"),
	}
	return []Bug{
		{"CreatedTwice", CreatedTwice, create, engine.Left, "configmaps/default/web-*"},
		{
			"OwnDefinition", ownDefinition, append(create[:2:2], simulate.Invariant(fewWidgets)), engine.Left,
			"configmaps/default/web-*",
		},
		{"RandomContent", randomContent, late, engine.Left, "configmaps/default/web-*"},
		{"RandomVolume", randomVolume, create, engine.Left, "pods/default/web-*"},
		{"RemovesAll", removesAll, remove, engine.Left, "configmaps/default/web-*"},
		{"WaitsBriefly", waitsBriefly, late, engine.Left, "configmaps/default/web-*"},
		{"OwnName", ownName, create, engine.Left, "configmaps/default/web-*"},
		{"Leaks", leaks, remove, engine.Left, "configmaps/default/web-*"},
		{"TrustsDelete", trustsDelete, remove, engine.Exited, "DeletedFinalStateUnknown"},
		{"LostUpdate", lostUpdate, second, engine.Differs, "data.api"},
		{"ReleasedEarly", releasedEarly, remove, engine.Left, "configmaps/default/web"},
		{"HotLoop", hotLoop, create, engine.Restless, "the update of configmaps/default/web"},
		{
			"DoubledCall", doubledCall, append(create[:2:2], simulate.External(Vendor, VendorService)), engine.Doubled,
			"POST vendor.example/disks size=1",
		},
		{"TwoLeaders", twoLeaders, create, engine.Left, "configmaps/default/web-*"},
		{"ActsOnThePast", actsOnThePast, grow, engine.Violated, "the second ConfigMap of web is gone"},
		{"WorksOn", worksOn, deposed, engine.Left, "configmaps/default/api-*"},
	}
}

// fewWidgets also asks for the widgets before their kind is served.
func fewWidgets(w simulate.World) error {
	if n := len(w.Objects("widgets")); n > 1 {
		return fmt.Errorf("there are %d widgets", n)
	}
	return nil
}

// hasSecond is the condition that the controller has seen that web is to have two ConfigMaps.
func hasSecond(w simulate.World) error {
	if seen := (Widget{w.Object("widgets/web")}).Status("seen"); seen != "2" {
		return fmt.Errorf("the controller has seen the size %s", seen)
	}
	return nil
}

// keepsSecond is violated if the second ConfigMap is deleted after that.
func keepsSecond(w simulate.World) error {
	if w.Object("widgets/web") != nil && hasSecond(w) == nil && w.Object("configmaps/web-2") == nil {
		return errors.New("the second ConfigMap of web is gone")
	}
	return nil
}

// Web returns a widget.
func Web() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.fairlead.io/v1", "kind": "Widget", "metadata": map[string]any{"name": "web"},
		"spec": map[string]any{"size": int64(1)},
	}}
}

// Ready is the condition that the widget of Web has the phase Ready.
func Ready(w simulate.World) error {
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
