package crd_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver/crd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const manifest = `
kind: CustomResourceDefinition
apiVersion: apiextensions.k8s.io/v1
metadata: {name: gadgets.test.fairlead.io}
spec:
  group: test.fairlead.io
  scope: Namespaced
  names: {plural: gadgets, kind: Gadget, shortNames: [gd], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale:
        {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}
    selectableFields: [{jsonPath: .spec.color}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            x-kubernetes-validations:
            - {rule: "self.min <= self.max", message: min is above max}
            - {rule: "self.color == oldSelf.color", message: color is immutable}
            properties:
              color: {type: string, default: red, enum: [red, blue]}
              min: {type: integer, default: 1}
              max: {type: integer, default: 5}
              replicas: {type: integer}
              ports:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name]
                  properties: {name: {type: string}, port: {type: integer}}
          status:
            type: object
            properties: {replicas: {type: integer}, selector: {type: string}, phase: {type: string}}
  - name: v1beta1
    served: true
    storage: false
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {color: {type: string}, min: {type: integer}, old: {type: string}}
`

const gadgetsPath = "/apis/test.fairlead.io/v1/namespaces/a/gadgets"

var gadgets = schema.GroupVersionResource{Group: "test.fairlead.io", Version: "v1", Resource: "gadgets"}

// client sends requests to a server in memory.
type client struct {
	t *testing.T
	s *apiserver.Server
	c *http.Client
}

func newServer(t *testing.T, opts apiserver.Options) client {
	t.Helper()
	s, err := apiserver.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	transport := &http.Transport{DialContext: s.Dial}
	t.Cleanup(transport.CloseIdleConnections)
	return client{t, s, &http.Client{Transport: transport}}
}

func serve(t *testing.T, manifests ...string) client {
	t.Helper()
	var data [][]byte
	for _, m := range manifests {
		data = append(data, []byte(m))
	}
	crds, err := crd.New(data...)
	if err != nil {
		t.Fatal(err)
	}
	return newServer(t, apiserver.Options{Pipe: true, CRDs: crds})
}

// do returns the code and the object of an answer.
func (c client) do(method, path, contentType, body string) (int, *unstructured.Unstructured) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.s.URL()+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	res, err := c.c.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if bytes.HasPrefix(b, []byte("{")) {
		if err := json.Unmarshal(b, &u.Object); err != nil {
			c.t.Fatal(err)
		}
	}
	return res.StatusCode, u
}

func (c client) get(path string) (int, *unstructured.Unstructured) {
	c.t.Helper()
	return c.do(http.MethodGet, path, "", "")
}

func (c client) post(path, body string) (int, *unstructured.Unstructured) {
	c.t.Helper()
	return c.do(http.MethodPost, path, "application/json", body)
}

func (c client) merge(path, body string) (int, *unstructured.Unstructured) {
	c.t.Helper()
	return c.do(http.MethodPatch, path, "application/merge-patch+json", body)
}

// expect fails unless an answer has this code and, in the field of an object, this value.
func (c client) expect(want string, fields ...string) func(int, *unstructured.Unstructured) {
	c.t.Helper()
	return func(code int, u *unstructured.Unstructured) {
		c.t.Helper()
		value, _, _ := unstructured.NestedFieldNoCopy(u.Object, fields...)
		text, err := json.Marshal(value)
		if err != nil {
			c.t.Fatal(err)
		}
		if got := fmt.Sprintf("%d %s", code, text); got != want {
			c.t.Errorf("got %s, want %s\n%v", got, want, u.Object)
		}
	}
}

func gadget(name, spec string) string {
	return `{"kind":"Gadget","apiVersion":"test.fairlead.io/v1","metadata":{"name":"` + name + `"},"spec":{` + spec + `}}`
}

func TestSchemaPrunesDefaultsAndValidates(t *testing.T) {
	t.Parallel()
	c := serve(t, manifest)
	c.expect(`201 {"color":"red","max":5,"min":2}`, "spec")(c.post(gadgetsPath, gadget("a", `"min":2,"odd":1`)))
	c.expect(`422 "Invalid"`, "reason")(c.post(gadgetsPath, gadget("b", `"min":9`)))
	c.expect(`422 "Invalid"`, "reason")(c.post(gadgetsPath, gadget("b", `"color":"green"`)))
	c.expect(`422 "Invalid"`, "reason")(c.merge(gadgetsPath+"/a", `{"spec":{"color":"blue"}}`))
	c.expect(`400 "BadRequest"`, "reason")(c.post(gadgetsPath+"?fieldValidation=Strict", gadget("b", `"odd":1`)))
	c.expect(`200 2`, "metadata", "generation")(c.merge(gadgetsPath+"/a", `{"spec":{"max":6}}`))
	c.expect(`200 2`, "metadata", "generation")(c.merge(gadgetsPath+"/a/status", `{"status":{"phase":"x","odd":1}}`))
	c.expect(`200 {"phase":"x"}`, "status")(c.get(gadgetsPath + "/a"))
}

// TestVersionsShareTheirObjects: each version reads and writes all objects, without the fields that it does not have.
func TestVersionsShareTheirObjects(t *testing.T) {
	t.Parallel()
	c := serve(t, manifest)
	const beta = "/apis/test.fairlead.io/v1beta1/namespaces/a/gadgets"
	c.expect(`201 {"color":"blue","min":2}`, "spec")(c.post(beta,
		strings.Replace(gadget("a", `"color":"blue","min":2,"old":"x"`), "io/v1", "io/v1beta1", 1)))
	c.expect(`200 {"color":"blue","max":5,"min":2}`, "spec")(c.get(gadgetsPath + "/a"))
	c.expect(`200 "test.fairlead.io/v1beta1"`, "apiVersion")(c.get(beta + "/a"))
	c.expect(`200 {"color":"blue","max":7,"min":3}`, "spec")(c.merge(gadgetsPath+"/a", `{"spec":{"min":3,"max":7}}`))
	c.expect(`200 {"color":"blue","min":3}`, "spec")(c.get(beta + "/a"))
	_, list := c.get(beta)
	if items, _, _ := unstructured.NestedSlice(list.Object, "items"); len(items) != 1 ||
		items[0].(map[string]any)["apiVersion"] != "test.fairlead.io/v1beta1" {
		t.Errorf("the list of the other version: %v", list.Object)
	}
	if o, err := c.s.Object(gadgets, "a", "a"); err != nil || o.GetAPIVersion() != "test.fairlead.io/v1" {
		t.Errorf("stored: %v, %v", o, err)
	}
	_, group := c.get("/apis/test.fairlead.io")
	if v, _, _ := unstructured.NestedString(group.Object, "preferredVersion", "version"); v != "v1" {
		t.Errorf("preferred version %q", v)
	}
}

func TestScaleChangesReplicas(t *testing.T) {
	t.Parallel()
	c := serve(t, manifest)
	c.expect(`201 null`, "spec", "replicas")(c.post(gadgetsPath, gadget("a", ``)))
	c.expect(`200 3`, "spec", "replicas")(c.merge(gadgetsPath+"/a/scale", `{"spec":{"replicas":3}}`))
	c.expect(`200 3`, "spec", "replicas")(c.get(gadgetsPath + "/a"))
	c.expect(`200 2`, "metadata", "generation")(c.get(gadgetsPath + "/a"))
	c.expect(`422 "Invalid"`, "reason")(c.merge(gadgetsPath+"/a/scale", `{"spec":{"replicas":-1}}`))
	c.expect(`200 {"replicas":2,"selector":"a=b"}`, "status")(c.merge(gadgetsPath+"/a/status",
		`{"status":{"replicas":2,"selector":"a=b"}}`))
	c.expect(`200 {"replicas":2,"selector":"a=b"}`, "status")(c.get(gadgetsPath + "/a/scale"))
	c.expect(`404 "NotFound"`, "reason")(c.get(gadgetsPath + "/none/scale"))
}

func TestApplyMergesByTheSchema(t *testing.T) {
	t.Parallel()
	c := serve(t, manifest)
	apply := func(manager, ports string) (int, *unstructured.Unstructured) {
		return c.do(http.MethodPatch, gadgetsPath+"/a?fieldManager="+manager, "application/apply-patch+yaml",
			gadget("a", `"ports":[`+ports+`]`))
	}
	c.expect(`201 [{"name":"x","port":1}]`, "spec", "ports")(apply("one", `{"name":"x","port":1}`))
	c.expect(`200 [{"name":"x","port":1},{"name":"y","port":2}]`, "spec", "ports")(apply("two", `{"name":"y","port":2}`))
	c.expect(`409 "Conflict"`, "reason")(apply("two", `{"name":"x","port":2}`))
	c.expect(`200 "red"`, "spec", "color")(c.get(gadgetsPath + "/a"))
	c.expect(`200 [{"name":"y","port":2}]`, "spec", "ports")(apply("one", ``))
}

// gadgetObject is the Go type of a gadget, as an operator has it.
type gadgetObject struct {
	metav1.TypeMeta
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Ports []struct{ Name string }
	}
}

func (g *gadgetObject) DeepCopyObject() runtime.Object {
	c := *g
	return &c
}

// TestKindsInTheScheme: a kind that a program adds to the scheme of client-go is as custom as any other kind.
func TestKindsInTheScheme(t *testing.T) {
	scheme.Scheme.AddKnownTypeWithName(gadgets.GroupVersion().WithKind("Gadget"), &gadgetObject{})
	c := serve(t, manifest)
	c.expect(`201 {"color":"red","max":5,"min":2}`, "spec")(c.post(gadgetsPath, gadget("b", `"min":2,"odd":1`)))
	c.expect(`200 {"color":"red","max":6,"min":2}`, "spec")(c.merge(gadgetsPath+"/b", `{"spec":{"max":6}}`))
	apply := func(manager, ports string) (int, *unstructured.Unstructured) {
		return c.do(http.MethodPatch, gadgetsPath+"/a?fieldManager="+manager, "application/apply-patch+yaml",
			gadget("a", `"ports":[`+ports+`]`))
	}
	c.expect(`201 [{"name":"x","port":1}]`, "spec", "ports")(apply("one", `{"name":"x","port":1}`))
	c.expect(`200 [{"name":"x","port":1},{"name":"y","port":2}]`, "spec", "ports")(apply("two", `{"name":"y","port":2}`))
	c.expect(`415 "UnsupportedMediaType"`, "reason")(c.do(http.MethodPatch, gadgetsPath+"/a",
		"application/strategic-merge-patch+json", `{"spec":{"min":3}}`))
}

// TestFieldSelectors: a selectable field of the definition selects objects of lists.
func TestFieldSelectors(t *testing.T) {
	t.Parallel()
	c := serve(t, manifest)
	c.post(gadgetsPath, gadget("a", `"color":"red"`))
	c.post(gadgetsPath, gadget("b", `"color":"blue"`))
	code, list := c.get(gadgetsPath + "?fieldSelector=spec.color=blue")
	if items, _, _ := unstructured.NestedSlice(list.Object, "items"); code != 200 || len(items) != 1 {
		t.Errorf("%d %v", code, list.Object)
	}
	c.expect(`400 "BadRequest"`, "reason")(c.get(gadgetsPath + "?fieldSelector=spec.min=1"))
}

// definition returns the manifest as JSON, so that a client can create it.
func definition(t *testing.T) string {
	t.Helper()
	crds, err := crd.New([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(crds.Initial[0].Content)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestLifeOfADefinition: it is served once it is created, changes with its schema, and its deletion takes its objects.
func TestLifeOfADefinition(t *testing.T) {
	t.Parallel()
	var writes []string
	crds, err := crd.New()
	if err != nil {
		t.Fatal(err)
	}
	c := newServer(t, apiserver.Options{Pipe: true, CRDs: crds, OnChange: func(change apiserver.Change) {
		verb := "changed"
		if change.Old == nil {
			verb = "created"
		} else if change.New == nil {
			verb = "removed"
		}
		writes = append(writes, verb+" "+change.Resource.Resource)
	}})
	const all = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	const one = all + "/gadgets.test.fairlead.io"
	if code, _ := c.get(gadgetsPath); code != http.StatusNotFound {
		t.Errorf("before: %d", code)
	}
	c.expect(`422 "Invalid"`, "reason")(c.post(all, strings.Replace(definition(t), `"Namespaced"`, `"Odd"`, 1)))
	c.expect(`201 ["v1"]`, "status", "storedVersions")(c.post(all, definition(t)))
	_, stored := c.get(one)
	conditions, _, _ := unstructured.NestedSlice(stored.Object, "status", "conditions")
	var types []string
	for _, cond := range conditions {
		types = append(types, fmt.Sprint(cond.(map[string]any)["type"], cond.(map[string]any)["status"]))
	}
	if diff := cmp.Diff([]string{"NamesAcceptedTrue", "EstablishedTrue"}, types); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	c.expect(`201 5`, "spec", "max")(c.post(gadgetsPath, gadget("a", ``)))
	c.expect(`201 5`, "spec", "max")(c.post(gadgetsPath, strings.Replace(gadget("b", ``), `"name"`,
		`"finalizers":["test.fairlead.io/keep"],"name"`, 1)))
	resource := resourceIn(t, c, "gadgets")
	if diff := cmp.Diff([]any{"gd"}, resource["shortNames"]); diff != "" {
		t.Errorf("short names: %s", diff)
	}

	// A new field with a default appears in objects that are stored already.
	c.expect(`200 2`, "metadata", "generation")(c.do(http.MethodPatch, one, "application/json-patch+json",
		`[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size",`+
			`"value":{"type":"integer","default":4}}]`))
	c.expect(`200 4`, "spec", "size")(c.get(gadgetsPath + "/a"))

	expectGroup := func(want bool) {
		t.Helper()
		_, groups := c.get("/apis")
		if got := strings.Contains(fmt.Sprint(groups.Object), "test.fairlead.io"); got != want {
			t.Errorf("the group is in discovery: %t, want %t", got, want)
		}
	}
	expectGroup(true)
	writes = nil
	if code, _ := c.do(http.MethodDelete, one, "", ""); code != http.StatusOK {
		t.Errorf("delete: %d", code)
	}
	want := []string{"changed customresourcedefinitions", "removed gadgets", "changed gadgets"}
	if diff := cmp.Diff(want, writes); diff != "" {
		t.Errorf("writes of the deletion (-want +got):\n%s", diff)
	}
	c.expect(`403 "Forbidden"`, "reason")(c.post(gadgetsPath, gadget("c", ``)))
	c.expect(`200 null`, "metadata", "finalizers")(c.merge(gadgetsPath+"/b", `{"metadata":{"finalizers":null}}`))
	if code, _ := c.get(one); code != http.StatusNotFound {
		t.Errorf("the definition is still there: %d", code)
	}
	if code, _ := c.get(gadgetsPath); code != http.StatusNotFound {
		t.Errorf("its objects are still served: %d", code)
	}
	expectGroup(false)
	c.post(all, definition(t))
	_, list := c.get(gadgetsPath)
	if items, _, _ := unstructured.NestedSlice(list.Object, "items"); len(items) != 0 {
		t.Errorf("a new definition begins with objects: %v", items)
	}
}

func resourceIn(t *testing.T, c client, name string) map[string]any {
	t.Helper()
	_, list := c.get("/apis/test.fairlead.io/v1")
	items, _, _ := unstructured.NestedSlice(list.Object, "resources")
	for _, r := range items {
		if r.(map[string]any)["name"] == name {
			return r.(map[string]any)
		}
	}
	t.Fatalf("no resource %s in %v", name, list.Object)
	return nil
}

// TestRollbackServesWhatIsStored: a definition from after the restored state is not served.
func TestRollbackServesWhatIsStored(t *testing.T) {
	t.Parallel()
	c := serve(t)
	before := c.s.Revision()
	c.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(t))
	if err := c.s.Rollback(before); err != nil {
		t.Fatal(err)
	}
	if code, _ := c.get(gadgetsPath); code != http.StatusNotFound {
		t.Errorf("still served: %d", code)
	}
}

func TestInvalidManifests(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ manifest, want string }{
		"no YAML":      {"\t{", "cannot read a manifest"},
		"old version":  {strings.Replace(manifest, "k8s.io/v1", "k8s.io/v1beta1", 1), "must be apiextensions.k8s.io/v1"},
		"broken rule":  {strings.Replace(manifest, "self.min <=", "self.odd <=", 1), "undefined field 'odd'"},
		"odd name":     {strings.Replace(manifest, "name: gadgets", "name: others", 1), "metadata.name"},
		"untyped spec": {strings.Replace(manifest, "default: 1}", "default: x}", 1), "default"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := crd.New([]byte(tc.manifest)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want …%s…", err, tc.want)
			}
		})
	}
}

// TestServersShareDefinitions: schemas are compiled once for all servers.
func TestServersShareDefinitions(t *testing.T) {
	t.Parallel()
	var manifests []string
	for _, name := range []string{"gadgets", "gizmos", "widgets", "doodads", "trinkets"} {
		manifests = append(manifests, strings.NewReplacer("gadgets", name, "Gadget", strings.ToUpper(name[:1])+name[1:],
			"shortNames: [gd], ", "").Replace(manifest))
	}
	first := serve(t, strings.Join(manifests, "\n---\n"))
	_, stored := first.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
	items, _, _ := unstructured.NestedSlice(stored.Object, "items")
	if len(items) != 5 {
		t.Fatalf("%d definitions are served, want 5", len(items))
	}
	crds, err := crd.New([]byte(strings.Join(manifests, "\n---\n")))
	if err != nil {
		t.Fatal(err)
	}
	a, err := crds.Find(crds.Initial[0].Content)
	if err != nil || a != crds.Initial[0].Definition {
		t.Errorf("a definition is compiled twice (%v)", err)
	}
}

// TestServersOfBubblesShareDefinitions: a schema that was compiled in one bubble of testing/synctest serves in another.
func TestServersOfBubblesShareDefinitions(t *testing.T) {
	t.Parallel()
	crds, err := crd.New()
	if err != nil {
		t.Fatal(err)
	}
	body := definition(t)
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			c := newServer(t, apiserver.Options{Pipe: true, CRDs: crds})
			c.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)
			c.expect(`201 5`, "spec", "max")(c.post(gadgetsPath, gadget("a", ``)))
			c.expect(`422 "Invalid"`, "reason")(c.merge(gadgetsPath+"/a", `{"spec":{"color":"blue"}}`))
		})
	}
}

func BenchmarkNew(b *testing.B) {
	var manifests [][]byte
	for _, name := range []string{"gadgets", "gizmos", "widgets", "doodads", "trinkets"} {
		manifests = append(manifests, []byte(strings.ReplaceAll(manifest, "gadgets", name)))
	}
	crds, err := crd.New(manifests...)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s, err := apiserver.New(apiserver.Options{Pipe: true, CRDs: crds})
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}

// The typed client for definitions sends protobuf.
func TestDefinitionInProtobuf(t *testing.T) {
	t.Parallel()
	crds, err := crd.New()
	if err != nil {
		t.Fatal(err)
	}
	s, err := apiserver.New(apiserver.Options{CRDs: crds})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	cfg := s.Config()
	cfg.ContentType = runtime.ContentTypeProtobuf
	client, err := clientset.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var want apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict([]byte(manifest), &want); err != nil {
		t.Fatal(err)
	}
	definitions := client.ApiextensionsV1().CustomResourceDefinitions()
	if _, err := definitions.Create(t.Context(), &want, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := definitions.Get(t.Context(), want.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Spec.Versions, got.Spec.Versions); diff != "" {
		t.Errorf("the stored versions (-want +got):\n%s", diff)
	}
	got.Labels = map[string]string{"a": "b"}
	if got, err = definitions.Update(t.Context(), got, metav1.UpdateOptions{}); err != nil || got.Labels["a"] != "b" {
		t.Errorf("the update leads to the labels %v, error %v", got.Labels, err)
	}
}
