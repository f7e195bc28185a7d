package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/admission"
	"github.com/fairlead-io/fairlead/internal/testbed/hookbed"
	"github.com/fairlead-io/fairlead/internal/testlimit"
	"github.com/fairlead-io/fairlead/observe"
)

// conversionBed is a custom resource with its definition, and the namespace of a converting program. The definition
// names the Service of the program. The Service leads the API server to this process.
type conversionBed struct {
	*hookbed.Bench
	definitions apiextensions.CustomResourceDefinitionInterface
	scheme      *runtime.Scheme
	crd         *apiextensionsv1.CustomResourceDefinition
	group       string
	namespace   string
	port        int32
	listener    net.Listener
}

func newConversionBed(t *testing.T) *conversionBed {
	t.Helper()
	cfg, namespace := env.Config(t), env.Namespace(t)
	b := &conversionBed{
		Bench: hookbed.New(t, cfg), namespace: namespace, group: namespace + ".example.com",
		definitions: apiextensions.NewForConfigOrDie(cfg).CustomResourceDefinitions(),
	}
	b.scheme, b.crd = hookbed.Pages(b.group)
	var err error
	if b.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.listener.Close() })
	b.port = int32(b.listener.Addr().(*net.TCPAddr).Port)
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "hooks"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}
	if _, err := b.API.CoreV1().Services(namespace).Create(b.Ctx, service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.definitions.Delete(context.WithoutCancel(b.Ctx), b.crd.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return b
}

// shipped returns the definition as a project ships it: with the Service, and without a caBundle.
func (b *conversionBed) shipped() *apiextensionsv1.CustomResourceDefinition {
	path := "/convert/page." + b.group
	crd := b.crd.DeepCopy()
	crd.APIVersion, crd.Kind = apiextensionsv1.SchemeGroupVersion.String(), "CustomResourceDefinition"
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1"},
			ClientConfig: &apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{
				Namespace: b.namespace, Name: "hooks", Path: &path, Port: &b.port,
			}},
		},
	}
	return crd
}

// unconverted returns the definition without a conversion, for which the API server fills in None.
func (b *conversionBed) unconverted() *apiextensionsv1.CustomResourceDefinition {
	crd := b.shipped()
	crd.Spec.Conversion = nil
	return crd
}

// apply applies a definition with the field manager of a user, and waits until its versions are served.
func (b *conversionBed) apply(crd *apiextensionsv1.CustomResourceDefinition) {
	b.T.Helper()
	if err := b.tryApply(crd, true); err != nil {
		b.T.Fatal(err)
	}
	b.Eventually("the definition is served", func() string {
		for _, v := range crd.Spec.Versions {
			if _, err := b.at(v.Name).Get(b.Ctx, "none", metav1.GetOptions{}); !strings.Contains(hookbed.Text(err),
				`"none" not found`) {
				return v.Name + ": " + hookbed.Text(err)
			}
		}
		return ""
	})
}

func (b *conversionBed) tryApply(crd *apiextensionsv1.CustomResourceDefinition, force bool) error {
	raw, err := json.Marshal(crd)
	if err != nil {
		return err
	}
	_, err = b.definitions.Patch(b.Ctx, crd.Name, types.ApplyPatchType, raw,
		metav1.PatchOptions{FieldManager: "user", Force: &force})
	return err
}

func (b *conversionBed) at(version string) dynamic.ResourceInterface {
	gvr := schema.GroupVersionResource{Group: b.group, Version: version, Resource: "pages"}
	return dynamic.NewForConfigOrDie(env.Config(b.T)).Resource(gvr).Namespace(b.namespace)
}

func (b *conversionBed) create(version, name string, spec map[string]any) error {
	b.T.Helper()
	_, err := b.at(version).Create(b.Ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": b.group + "/" + version, "kind": "Page", "metadata": map[string]any{"name": name}, "spec": spec,
	}}, metav1.CreateOptions{})
	return err
}

// label labels an object, as kubectl label does.
func (b *conversionBed) label(version, name string) error {
	_, err := b.at(version).Patch(b.Ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`),
		metav1.PatchOptions{})
	return err
}

// state returns the specs of all objects by their names, and whether they have the label, at one version.
func (b *conversionBed) state(version string) map[string]any {
	b.T.Helper()
	list, err := b.at(version).List(b.Ctx, metav1.ListOptions{})
	if err != nil {
		b.T.Fatal(err)
	}
	all := map[string]any{}
	for _, o := range list.Items {
		name := o.GetName()
		if o.GetLabels()["a"] != "" {
			name += " (labelled)"
		}
		all[name] = o.Object["spec"]
	}
	return all
}

// refused checks that the API server has refused a request because it cannot convert.
func (b *conversionBed) refused(what string, err error) {
	b.T.Helper()
	if !strings.Contains(hookbed.Text(err), "conversion webhook for ") {
		b.T.Errorf("%s: %v", what, err)
	}
}

// program returns a runtime that converts, with v1 as the hub.
func (b *conversionBed) program(exit bool) (*fairlead.Runtime, *admission.Hooks) {
	b.T.Helper()
	rt := fairlead.New(env.Config(b.T), fairlead.WithScheme(b.scheme))
	h := admission.Serve(rt, admission.Options{
		Name: b.namespace, Namespace: b.namespace, Service: "hooks", ServicePort: b.port, Listener: b.listener, Linger: -1,
		ExitOnLostFields: exit,
	})
	admission.Convert(h, hookbed.OldToPage, hookbed.PageToOld)
	admission.Convert(h, hookbed.MidToPage, hookbed.PageToMid)
	return rt, h
}

// run runs a program that converts, and observes v1. It returns when the observer has handled the existing objects.
// shown returns the hosts and ports of all observed objects.
func (b *conversionBed) run() (stop func(), shown func() []string) {
	b.T.Helper()
	rt, _ := b.program(false)
	var mu sync.Mutex
	var all []string
	pages := observe.Selector("pages")
	observe.Source[hookbed.Page](rt, pages)
	observe.On(rt, pages, func(_ context.Context, e observe.Event[hookbed.Page]) error {
		if o := e.Object(); o != nil {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, o.Name+"="+o.Spec.Host+":"+o.Spec.Port)
		}
		return nil
	})
	stop = hookbed.Run(b.T, rt)
	if err := rt.WaitSynced(b.Ctx); err != nil {
		b.T.Fatal(err)
	}
	return stop, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// converts waits until the API server converts.
func (b *conversionBed) converts(name, address string) {
	b.T.Helper()
	b.Eventually("the API server converts", func() string {
		o, err := b.at("v1alpha1").Get(b.Ctx, name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		return cmp.Diff(any(map[string]any{"address": address}), o.Object["spec"])
	})
}

// reported returns what is missing in the condition and in the Event.
func (b *conversionBed) reported() string {
	crd, err := b.definitions.Get(b.Ctx, b.crd.Name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	if !slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == "fairlead.io/FieldsMayBeLost" && c.Status == apiextensionsv1.ConditionTrue &&
			c.Reason == "ConversionNone" && c.Message != "" && !c.LastTransitionTime.IsZero()
	}) {
		return "no condition"
	}
	events, err := b.API.EventsV1().Events(metav1.NamespaceDefault).List(b.Ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	for _, e := range events.Items {
		if e.Regarding.UID == crd.UID && e.Reason == "FieldsMayBeLost" && e.Type == corev1.EventTypeWarning {
			return ""
		}
	}
	return "no Event"
}

var (
	secure = map[string]any{"host": "web", "port": "443", "tls": true}
	plain  = map[string]any{"address": "web:80"}
)

// Objects that are applied together with the definition, before the program runs for the first time, keep their
// fields.
func TestFirstInstall(t *testing.T) {
	t.Parallel()
	b := newConversionBed(t)
	b.apply(b.shipped())
	if err := b.create("v1", "stored", secure); err != nil {
		t.Fatal(err)
	}
	b.refused("create at another version", b.create("v1alpha1", "other", plain))
	b.refused("label at another version", b.label("v1alpha1", "stored"))
	if diff := cmp.Diff(map[string]any{"stored": secure}, b.state("v1")); diff != "" {
		t.Errorf("before the program: %s", diff)
	}
	_, shown := b.run()
	if diff := cmp.Diff([]string{"stored=web:443"}, shown()); diff != "" {
		t.Error(diff)
	}
	b.converts("stored", "web:443")
	if err := b.label("v1alpha1", "stored"); err != nil {
		t.Fatal(err)
	}
	if err := b.create("v1alpha1", "other", plain); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"stored (labelled)": secure, "other": map[string]any{"host": "web", "port": "80"}}
	if diff := cmp.Diff(want, b.state("v1")); diff != "" {
		t.Errorf("with the program: %s", diff)
	}
	if lacks := b.reported(); lacks != "no condition" {
		t.Errorf("a loss of fields is reported, although none were lost (%s)", lacks)
	}
}

// A definition with stored objects gets more versions, and a new storage version.
func TestSecondVersion(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		next   func(*conversionBed) *apiextensionsv1.CustomResourceDefinition
		closed bool // until the program runs
	}{
		{"as shipped", (*conversionBed).shipped, true},
		{"without a conversion", (*conversionBed).unconverted, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			b := newConversionBed(t)
			first := b.unconverted()
			first.Spec.Versions = first.Spec.Versions[:1]
			first.Spec.Versions[0].Storage = true
			b.apply(first)
			if err := b.create("v1alpha1", "old", plain); err != nil {
				t.Fatal(err)
			}
			b.apply(tc.next(b))
			if tc.closed {
				_, err := b.at("v1").Get(b.Ctx, "old", metav1.GetOptions{})
				b.refused("read at the new version", err)
				b.refused("label at the old version, which is not stored any more", b.label("v1alpha1", "old"))
				if diff := cmp.Diff(map[string]any{"old": plain}, b.state("v1alpha1")); diff != "" {
					t.Errorf("before the program: %s", diff)
				}
			}
			_, shown := b.run()
			if diff := cmp.Diff([]string{"old=web:80"}, shown()); diff != "" {
				t.Errorf("the observer received unconverted objects: %s", diff)
			}
			b.converts("old", "web:80")
			if err := b.label("v1alpha1", "old"); err != nil {
				t.Fatal(err)
			}
			want := map[string]any{"old (labelled)": map[string]any{"host": "web", "port": "80"}}
			if diff := cmp.Diff(want, b.state("v1")); diff != "" {
				t.Errorf("with the program: %s", diff)
			}
			if lacks := b.reported(); (lacks == "") == tc.closed {
				t.Errorf("reported: %s", lacks)
			}
		})
	}
}

// The program restores what a new apply removes, long before its regular check.
func TestReapply(t *testing.T) {
	t.Parallel()
	b := newConversionBed(t)
	b.apply(b.shipped())
	if err := b.create("v1", "a", secure); err != nil {
		t.Fatal(err)
	}
	b.run()
	b.converts("a", "web:443")
	replace := func(crd *apiextensionsv1.CustomResourceDefinition) error {
		for {
			live, err := b.definitions.Get(b.Ctx, crd.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			next := crd.DeepCopy()
			next.ResourceVersion = live.ResourceVersion
			if _, err = b.definitions.Update(b.Ctx, next, metav1.UpdateOptions{}); err == nil ||
				!strings.Contains(err.Error(), "the object has been modified") {
				return err
			}
		}
	}
	patch := func(kind types.PatchType, body any) error {
		raw, err := json.Marshal(body)
		if err != nil {
			return err
		}
		_, err = b.definitions.Patch(b.Ctx, b.crd.Name, kind, raw, metav1.PatchOptions{FieldManager: "user"})
		return err
	}
	for _, tc := range []struct {
		reason string
		apply  func() error
		lossy  bool
	}{
		{"kubectl apply", func() error {
			return patch(types.MergePatchType, map[string]any{"spec": b.shipped().Spec})
		}, false},
		{"kubectl apply --server-side", func() error { return b.tryApply(b.shipped(), false) }, false},
		{"kubectl apply --server-side --force-conflicts", func() error { return b.tryApply(b.shipped(), true) }, false},
		{"kubectl replace, helm upgrade --force", func() error { return replace(b.shipped()) }, false},
		{"kubectl replace with None", func() error { return replace(b.unconverted()) }, true},
		{"kubectl patch to None", func() error {
			return patch(types.MergePatchType, map[string]any{"spec": map[string]any{
				"conversion": map[string]any{"strategy": "None", "webhook": nil},
			}})
		}, true},
	} {
		if lacks := b.reported(); tc.lossy && lacks == "" { // reset the report of the previous case
			if err := b.forget(); err != nil {
				t.Fatal(err)
			}
		}
		if err := tc.apply(); err != nil {
			t.Fatalf("%s: %v", tc.reason, err)
		}
		b.Eventually(tc.reason, func() string {
			crd, err := b.definitions.Get(b.Ctx, b.crd.Name, metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			if c := crd.Spec.Conversion; c.Strategy != apiextensionsv1.WebhookConverter ||
				len(c.Webhook.ClientConfig.CABundle) == 0 || c.Webhook.ClientConfig.Service == nil {
				return "the conversion is not complete"
			}
			return ""
		})
		b.converts("a", "web:443")
		if tc.lossy {
			b.Eventually(tc.reason+" is reported", b.reported)
		} else if b.reported() == "" {
			t.Errorf("%s: a loss of fields is reported", tc.reason)
		}
	}
}

// forget sets the condition to False, as an operator would.
func (b *conversionBed) forget() error {
	raw := []byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","status":{"conditions":[{
		"type":"fairlead.io/FieldsMayBeLost","status":"False","reason":"Compared","message":"compared with a backup"}]}}`)
	force := true
	_, err := b.definitions.Patch(b.Ctx, b.crd.Name, types.ApplyPatchType, raw,
		metav1.PatchOptions{FieldManager: "user", Force: &force}, "status")
	return err
}

// Without the program, reads of another version fail, and no write that needs a conversion is stored.
func TestConverterGone(t *testing.T) {
	t.Parallel()
	b := newConversionBed(t)
	b.apply(b.shipped())
	if err := b.create("v1", "a", secure); err != nil {
		t.Fatal(err)
	}
	stop, _ := b.run()
	b.converts("a", "web:443")
	stop()
	b.listener.Close()
	b.Eventually("the API server has lost the program", func() string {
		_, err := b.at("v1alpha1").Get(b.Ctx, "a", metav1.GetOptions{})
		if !strings.Contains(hookbed.Text(err), "conversion webhook for ") {
			return hookbed.Text(err)
		}
		return ""
	})
	b.refused("create", b.create("v1alpha1", "b", plain))
	b.refused("label", b.label("v1alpha1", "a"))
	b.refused("delete of all", b.at("v1alpha1").DeleteCollection(b.Ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	if diff := cmp.Diff(map[string]any{"a": secure}, b.state("v1")); diff != "" {
		t.Errorf("stored: %s", diff)
	}
	if err := b.label("v1", "a"); err != nil {
		t.Errorf("label at the stored version: %v", err)
	}
}

// A program that is about to exit repairs the definition, reports it and exits; the next one runs.
func TestExitOnLostFields(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		before bool // before the program runs
	}{{"at the start", true}, {"while it runs", false}} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			b := newConversionBed(t)
			crd := b.shipped()
			if tc.before {
				crd = b.unconverted()
			}
			b.apply(crd)
			if err := b.create("v1", "a", secure); err != nil {
				t.Fatal(err)
			}
			rt, h := b.program(true)
			done := make(chan error, 1)
			go func() { done <- rt.Run(b.Ctx) }()
			if !tc.before {
				select {
				case <-h.Ready():
				case err := <-done:
					t.Fatal(err)
				}
				if err := b.tryApply(b.unconverted(), true); err != nil {
					t.Fatal(err)
				}
				if _, err := b.definitions.Patch(b.Ctx, b.crd.Name, types.MergePatchType,
					[]byte(`{"spec":{"conversion":{"strategy":"None","webhook":null}}}`), metav1.PatchOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case err := <-done:
				if !errors.Is(err, admission.ErrFieldsMayBeLost) || !strings.Contains(err.Error(), b.crd.Name) {
					t.Fatalf("Run: %v", err)
				}
			case <-time.After(testlimit.Wait):
				t.Fatal("the program does not exit")
			}
			if lacks := b.reported(); lacks != "" {
				t.Error(lacks)
			}
			var err error
			if b.listener, err = net.Listen("tcp", b.listener.Addr().String()); err != nil {
				t.Fatal(err)
			}
			b.run()
			b.converts("a", "web:443")
		})
	}
}
