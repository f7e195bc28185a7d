package toys

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fairlead-io/fairlead/simulate"
)

// CreatedTwice decides from its cache whether the ConfigMap with a generated name exists. Its twin has a fixed name.
func CreatedTwice(fixed bool) simulate.Subject {
	return Controller(func(t *Toy, w Widget) error { return t.createUnlessCached(w, fixed) })
}

func (t *Toy) createUnlessCached(w Widget, fixed bool) error {
	known, err := t.configMaps.List(labels.Set{"widget": w.GetName()}.AsSelector())
	if err != nil {
		return err
	}
	if len(known) == 0 {
		cm := configMap(w, w.GetName())
		if !fixed {
			cm.Name, cm.GenerateName = "", w.GetName()+"-"
		}
		if _, err := t.create(cm); ignore(err, apierrors.IsAlreadyExists) != nil {
			return err
		}
	}
	return t.SetStatus(w, map[string]any{"phase": "Ready"}, true)
}

// removesAll does as CreatedTwice does, and deletes all ConfigMaps of a deleted widget, so that nothing is left over in
// the end.
func removesAll(fixed bool) simulate.Subject {
	return Controller(func(t *Toy, w Widget) error {
		switch {
		case w.GetDeletionTimestamp() != nil:
			err := t.client.CoreV1().ConfigMaps("default").DeleteCollection(t.Context, metav1.DeleteOptions{},
				metav1.ListOptions{LabelSelector: "widget=" + w.GetName()})
			if err != nil {
				return err
			}
			return t.setFinalizers(w)
		case len(w.GetFinalizers()) == 0:
			return t.setFinalizers(w, finalizer)
		}
		return t.createUnlessCached(w, fixed)
	})
}

// waitsBriefly waits after a creation for its cache, as many operators do, and gives up after ten seconds. Its twin has
// a fixed name.
func waitsBriefly(fixed bool) simulate.Subject {
	return Controller(func(t *Toy, w Widget) error {
		of := labels.Set{"widget": w.GetName()}.AsSelector()
		if known, err := t.configMaps.List(of); err != nil || len(known) > 0 {
			return errors.Join(err, t.SetStatus(w, map[string]any{"phase": "Ready"}, true))
		}
		cm := configMap(w, w.GetName())
		if !fixed {
			cm.Name, cm.GenerateName = "", w.GetName()+"-"
		}
		if _, err := t.create(cm); ignore(err, apierrors.IsAlreadyExists) != nil {
			return err
		}
		return wait.PollUntilContextTimeout(t.Context, 100*time.Millisecond, 10*time.Second, true,
			func(context.Context) (bool, error) {
				known, err := t.configMaps.List(of)
				return len(known) > 0, err
			})
	})
}

// actsOnThePast deletes the second ConfigMap if its cache shows a smaller size. After a restart, that may be a size of
// long ago. Its twin asks the API server first.
func actsOnThePast(fixed bool) simulate.Subject {
	return Controller(func(t *Toy, w Widget) error {
		if fixed {
			present, err := t.Widgets.Get(t.Context, w.GetName(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			w = Widget{present}
		}
		second := w.GetName() + "-2"
		switch _, err := t.configMaps.Get(second); {
		case w.size() > 1:
			if _, err := t.create(configMap(w, second)); ignore(err, apierrors.IsAlreadyExists) != nil {
				return err
			}
		case err == nil:
			if err := t.remove(second); ignore(err, apierrors.IsNotFound) != nil {
				return err
			}
		}
		return t.SetStatus(w, map[string]any{"phase": "Ready", "seen": fmt.Sprint(w.size())}, true)
	})
}
