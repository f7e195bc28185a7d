package hostile_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/call"
)

// reference is a controller without other work. It sees a mark, calls the victim's receiver, and writes the mark's
// status. It does so twice, as for an operation with one Webhook. Its latency depends on the API server and on the
// machine.
type reference struct {
	v     *victim
	marks dynamic.ResourceInterface

	mu   sync.Mutex
	seen map[string]time.Time // by name: when an unfinished mark was created
}

var marks = schema.GroupVersionResource{Group: "hostile.example.com", Version: "v1", Resource: "marks"}

func newReference(v *victim, config *rest.Config) *reference {
	s := v.s
	s.t.Helper()
	anything := true
	crd := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta: metav1.TypeMeta{
			APIVersion: apiextensionsv1.SchemeGroupVersion.String(),
			Kind:       "CustomResourceDefinition",
		},
		ObjectMeta: metav1.ObjectMeta{Name: marks.GroupResource().String()},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: marks.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: marks.Resource, Singular: "mark", Kind: "Mark", ListKind: "MarkList",
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: marks.Version, Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{
					Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
				},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &anything,
				}},
			}},
		},
	}
	_, err := call.Do(s.ctx, s.caller(s.admin), call.Request{
		Verb: call.VerbCreate, Resource: apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"),
		Kind: "CustomResourceDefinition", Name: crd.Name, Object: crd,
	}, call.Policy{})
	s.must(nil, err)
	r := &reference{
		v: v, marks: dynamic.NewForConfigOrDie(config).Resource(marks).Namespace(v.namespace),
		seen: map[string]time.Time{},
	}
	for { // until the API server serves the resource
		if _, err = r.marks.List(s.ctx, metav1.ListOptions{}); err == nil {
			break
		}
		if !pause(s.ctx, 20*time.Millisecond) {
			s.t.Fatal(err)
		}
	}
	var working sync.WaitGroup
	s.t.Cleanup(working.Wait)
	go r.follow(&working)
	return r
}

// begin creates a mark.
func (r *reference) begin(ctx context.Context, n int) error {
	mark := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"n": int64(n)}}}
	mark.SetAPIVersion(marks.GroupVersion().String())
	mark.SetKind("Mark")
	mark.SetName(fmt.Sprint("mark-", n))
	r.mu.Lock()
	r.seen[mark.GetName()] = time.Now()
	r.mu.Unlock()
	_, err := r.marks.Create(ctx, mark, metav1.CreateOptions{})
	return err
}

// follow processes marks until the test ends.
func (r *reference) follow(working *sync.WaitGroup) {
	ctx := r.v.s.ctx
	for ctx.Err() == nil {
		events, err := r.marks.Watch(ctx, metav1.ListOptions{})
		if err != nil {
			pause(ctx, 50*time.Millisecond)
			continue
		}
		for event := range events.ResultChan() {
			mark, ok := event.Object.(*unstructured.Unstructured)
			if !ok {
				continue
			}
			state, _, _ := unstructured.NestedString(mark.Object, "status", "state")
			switch {
			case event.Type == watch.Added && state == "":
				working.Go(func() { r.work(ctx, mark) })
			case state == "done":
				r.ended(mark.GetName())
			}
		}
		events.Stop()
	}
}

// work processes a mark. A failure leaves the mark unfinished; the victim measures it when it stops waiting.
func (r *reference) work(ctx context.Context, mark *unstructured.Unstructured) {
	for _, state := range []string{"begun", "done"} {
		if state == "done" {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.v.receiver.URL, bytes.NewReader([]byte("{}")))
			if err != nil {
				return
			}
			req.Header.Set("Idempotency-Key", kindReference)
			resp, err := r.v.web.Do(req)
			if err != nil {
				return
			}
			resp.Body.Close()
		}
		err := unstructured.SetNestedField(mark.Object, state, "status", "state")
		if err == nil {
			mark, err = r.marks.UpdateStatus(ctx, mark, metav1.UpdateOptions{})
		}
		if err != nil {
			return
		}
	}
}

func (r *reference) ended(name string) {
	r.mu.Lock()
	began, waited := r.seen[name]
	delete(r.seen, name)
	r.mu.Unlock()
	if waited {
		r.v.note(kindReference, began)
	}
}
