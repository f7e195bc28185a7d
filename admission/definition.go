package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/tree"
	"github.com/fairlead-io/fairlead/reconcile"
)

const (
	// conditionLost is the type of the condition set on a CustomResourceDefinition whose strategy was None.
	conditionLost = "fairlead.io/FieldsMayBeLost"
	reasonNone    = "ConversionNone"
	eventLost     = "FieldsMayBeLost"
)

const (
	// learnTime is how long API servers may take to apply a changed definition.
	learnTime = 2 * time.Second
	// reportTime bounds the only attempt to report. The repair waits for it.
	reportTime = 2 * time.Second
)

// dropsFields reports whether the API server changes the version of stored objects without a conversion. An update
// through one version then drops the fields of the others.
func (t *target) dropsFields() bool { return t.isNone() && t.versions() > 1 }

// isNone reports whether t is a definition whose conversion strategy is None.
func (t *target) isNone() bool {
	strategy := tree.At(t.live, "spec", "conversion", "strategy")
	return t.resource == definitions && strategy == string(apiextensionsv1.NoneConverter)
}

func (t *target) versions() int {
	versions, _ := tree.At(t.live, "spec", "versions").([]any)
	return len(versions)
}

// leave removes the unwanted form of the address, Service or URL, from a definition. Only one form may be present, and
// an apply cannot remove a field of another owner. leave reports whether the definition was patched.
func (t *target) leave(ctx context.Context, calls *call.Client, want map[string]any, manager string) (bool, error) {
	other := "url"
	if tree.At(want, "spec", "conversion", "webhook", "clientConfig", other) != nil {
		other = "service"
	}
	if t.resource != definitions || tree.At(t.live, "spec", "conversion", "webhook", "clientConfig", other) == nil {
		return false, nil
	}
	conversion := tree.At(want, "spec", "conversion").(map[string]any)
	tree.At(conversion, "webhook", "clientConfig").(map[string]any)[other] = nil
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": t.version}, "spec": map[string]any{"conversion": conversion},
	})
	if err != nil {
		return false, err
	}
	_, err = call.Do(ctx, calls, call.Request{
		Verb: call.VerbPatch, PatchType: types.MergePatchType, Resource: t.resource, Kind: t.kind, Name: t.name, Body: body,
		ConflictsExpected: true, Query: url.Values{"fieldManager": {manager}},
	}, call.Policy{})
	return true, err
}

// reportCondition sets the condition of a definition that drops fields. It runs before the repair, so that a crash
// between the two steps does not hide the fault. It reports whether the definition has changed since it was read. It
// logs other failures, since the repair must not wait.
func (h *Hooks) reportCondition(ctx context.Context, t *target) (changed bool) {
	ctx, cancel := context.WithTimeout(ctx, reportTime)
	defer cancel()
	body, err := json.Marshal(map[string]any{
		"apiVersion": definitions.GroupVersion().String(), "kind": t.kind,
		"metadata": map[string]any{"name": t.name, "resourceVersion": t.version},
		"status": map[string]any{"conditions": []any{map[string]any{
			"type": conditionLost, "status": string(apiextensionsv1.ConditionTrue), "reason": reasonNone,
			"lastTransitionTime": metav1.Now().UTC().Format(time.RFC3339),
			"message": fmt.Sprintf("spec.conversion.strategy was None with %d versions, and was repaired. A write through one "+
				"version may have dropped fields of another version. Compare the objects with a backup, then set this "+
				"condition to False.", t.versions()),
		}}},
	})
	if err == nil {
		var answer *call.Answer
		if answer, err = call.Do(ctx, h.host.Calls(), call.Request{
			Verb: call.VerbApply, Resource: t.resource, Kind: t.kind, Name: t.name, Subresource: "status", Body: body,
			ConflictsExpected: true, Query: url.Values{"fieldManager": {h.manager()}, "force": {"true"}},
		}, call.Policy{Retries: -1, Timeout: reportTime}); err == nil {
			var is metav1.PartialObjectMetadata
			if err = json.Unmarshal(answer.Raw, &is); err == nil {
				t.version = is.ResourceVersion
				return false
			}
		}
	}
	if apierrors.IsConflict(err) {
		return true
	}
	h.log.ErrorContext(ctx, "cannot set the condition of a definition", "object", t.String(), "condition", conditionLost,
		"error", err)
	return false
}

// reportRepair reports the repair of a definition in the log and as an Event.
func (h *Hooks) reportRepair(ctx context.Context, t *target) {
	h.repaired = append(h.repaired, t.name)
	h.log.ErrorContext(ctx, "stored objects may have lost fields: the conversion strategy was None, and was repaired",
		"object", t.String(), "versions", t.versions())
	uid, _ := tree.At(t.live, "metadata", "uid").(string)
	obj := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: definitions.GroupVersion().String(), Kind: t.kind},
		ObjectMeta: metav1.ObjectMeta{Name: t.name, UID: types.UID(uid)},
	}
	recorder := reconcile.NewRecorder(h.host.Client(), "admission-"+h.o.Name)
	err := recorder.Event(ctx, obj, corev1.EventTypeWarning, eventLost,
		"Stored objects may have lost fields: spec.conversion.strategy was None with %d versions, and was repaired",
		t.versions())
	if err != nil {
		h.log.ErrorContext(ctx, "cannot write an Event", "object", t.String(), "error", err)
	}
}

// afterRepairs returns ErrFieldsMayBeLost if definitions were repaired and the program must exit.
func (h *Hooks) afterRepairs() error {
	if len(h.repaired) == 0 || !h.o.ExitOnLostFields {
		return nil
	}
	return fmt.Errorf("%w: the conversion strategy was None in CustomResourceDefinition %s", ErrFieldsMayBeLost,
		strings.Join(h.repaired, ", "))
}

// awaitRepairs waits until the API servers apply repaired definitions.
func (h *Hooks) awaitRepairs(ctx context.Context) error {
	if len(h.repaired) == 0 {
		return nil
	}
	h.repaired = nil
	return backoff.Pause(ctx, learnTime)
}

// followDefinitions calls changed at the start and whenever a converted definition changes, until stop is called.
// changed must not block.
func (h *Hooks) followDefinitions(changed func()) (stop func(), err error) {
	targets, err := h.targets()
	if err != nil {
		return nil, err
	}
	var ends []func()
	stop = func() {
		for _, end := range ends {
			end()
		}
	}
	for _, t := range targets {
		if t.resource != definitions {
			continue
		}
		handle, err := h.host.Cache().Open(store.Request{
			Kind: definitions.GroupVersion().WithKind(t.kind), Resource: definitions, Content: cache.Content{Metadata: true},
			Options: []cache.Option{cache.Fields("metadata.name=" + t.name)},
		})
		if err != nil {
			stop()
			return nil, err
		}
		drainer := handle.Drain(store.DrainOptions{
			SubscribeOptions: store.SubscribeOptions{Name: "admission " + h.o.Name}, Inline: true,
			Consume: func([]store.Event) bool { changed(); return true },
		})
		drainer.Start()
		ends = append(ends, drainer.Close, handle.Release)
	}
	return stop, nil
}
