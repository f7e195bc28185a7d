package simulate_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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

func copied(size string) func(simulate.World) error {
	return func(w simulate.World) error {
		u := w.Object("configmaps/web")
		if u == nil {
			return errors.New("there is no ConfigMap")
		}
		if s, _, _ := unstructured.NestedString(u.Object, "data", "size"); s != size {
			return fmt.Errorf("the size is %s", s)
		}
		return nil
	}
}

func TestToy(t *testing.T) {
	simulate.Test(t, createdTwice(true), simulate.ApplyObject(web()), simulate.Await(ready), simulate.Schedules(50),
		simulate.Until(time.Minute))
}

func TestToyBug(t *testing.T) {
	simulate.Test(t, createdTwice(false), simulate.ApplyObject(web()), simulate.Await(ready), simulate.Schedules(50),
		simulate.Until(time.Minute))
}
