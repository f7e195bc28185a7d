package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
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
	"github.com/fairlead-io/fairlead/client"
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

// repairs reports definitions whose conversion strategy was None: objects may have lost fields. It must be used by one
// goroutine at a time.
type repairs struct {
	calls   *call.Client
	client  *client.Client // writes Events
	name    string         // of the hooks
	manager string         // field manager of the condition
	exit    bool           // the program exits after a repair
	log     *slog.Logger

	repaired []string // names of the definitions, since the last call of take
}

// reportCondition sets the condition of a definition that drops fields. It runs before the repair, so that a crash
// between the two steps does not hide the fault. It reports whether the definition has changed since it was read. It
// logs other failures, since the repair must not wait.
func (r *repairs) reportCondition(ctx context.Context, t *target) (changed bool) {
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
		if answer, err = call.Do(ctx, r.calls, call.Request{
			Verb: call.VerbApply, Resource: t.resource, Kind: t.kind, Name: t.name, Subresource: "status", Body: body,
			ConflictsExpected: true, Query: url.Values{"fieldManager": {r.manager}, "force": {"true"}},
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
	r.log.ErrorContext(ctx, "cannot set the condition of a definition", "object", t.String(), "condition", conditionLost,
		"error", err)
	return false
}

// report reports the repair of a definition in the log and as an Event.
func (r *repairs) report(ctx context.Context, t *target) {
	r.repaired = append(r.repaired, t.name)
	r.log.ErrorContext(ctx, "stored objects may have lost fields: the conversion strategy was None, and was repaired",
		"object", t.String(), "versions", t.versions())
	uid, _ := tree.At(t.live, "metadata", "uid").(string)
	obj := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: definitions.GroupVersion().String(), Kind: t.kind},
		ObjectMeta: metav1.ObjectMeta{Name: t.name, UID: types.UID(uid)},
	}
	recorder := reconcile.NewRecorder(r.client, "admission-"+r.name)
	err := recorder.Event(ctx, obj, corev1.EventTypeWarning, eventLost,
		"Stored objects may have lost fields: spec.conversion.strategy was None with %d versions, and was repaired",
		t.versions())
	if err != nil {
		r.log.ErrorContext(ctx, "cannot write an Event", "object", t.String(), "error", err)
	}
}

// take returns ErrFieldsMayBeLost if definitions were repaired since the last call and the program must exit.
func (r *repairs) take() error {
	repaired := r.repaired
	r.repaired = nil
	if len(repaired) == 0 || !r.exit {
		return nil
	}
	return fmt.Errorf("%w: the conversion strategy was None in CustomResourceDefinition %s", ErrFieldsMayBeLost,
		strings.Join(repaired, ", "))
}

// takeAndAwait is take, and then waits until the API servers apply the repaired definitions.
func (r *repairs) takeAndAwait(ctx context.Context) error {
	repaired := len(r.repaired) > 0
	if err := r.take(); err != nil || !repaired {
		return err
	}
	return backoff.Pause(ctx, learnTime)
}

// followDefinitions calls changed at the start and whenever one of the converted definitions changes, until stop is
// called. changed must not block. name is that of the hooks.
func followDefinitions(c *cache.Cache, name string, targets []*target, changed func()) (stop func(), err error) {
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
		handle, err := c.Open(store.Request{
			Kind: definitions.GroupVersion().WithKind(t.kind), Resource: definitions, Content: cache.Content{Metadata: true},
			Options: []cache.Option{cache.Fields("metadata.name=" + t.name)},
		})
		if err != nil {
			stop()
			return nil, err
		}
		drainer := handle.Drain(store.DrainOptions{
			SubscribeOptions: store.SubscribeOptions{Name: "admission " + name}, Inline: true,
			Consume: func([]store.Event) bool { changed(); return true },
		})
		drainer.Start()
		ends = append(ends, drainer.Close, handle.Release)
	}
	return stop, nil
}
