package real_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/source"
	"github.com/fairlead-io/fairlead/store"
)

// selectable is a kind, the fields that the server selects by, and objects with different values of them.
type selectable struct {
	kind    schema.GroupVersionKind
	path    string // below the server's
	labels  []string
	objects []client.Object
	then    func(name string, obj client.Object) bool // changes the status of one
	fields  map[string]store.FieldValue
}

// What an own write is decided to be, inside of a selector of fields or outside, is what the server makes of the
// object: for each field that a built-in kind can be selected by, and those that were told of a custom one, in JSON and
// in protobuf, whole or cut to metadata.
func TestFieldsAreDecidedAsTheServerDoes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	web, err := rest.HTTPClientFor(env.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	get := func(path, accept string) (raw []byte, code int) {
		t.Helper()
		req, err := http.NewRequestWithContext(b.ctx, http.MethodGet, env.Config(t).Host+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", accept)
		res, err := web.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if raw, err = io.ReadAll(res.Body); err != nil {
			t.Fatal(err)
		}
		return raw, res.StatusCode
	}
	for _, account := range []string{"default", "robot"} {
		if err := b.other.Create(b.ctx, &corev1.ServiceAccount{ObjectMeta: b.meta(account)}); err != nil &&
			account != "default" {
			t.Fatal(err)
		}
	}
	for _, s := range b.selectables() {
		t.Run(s.kind.GroupKind().String(), func(t *testing.T) {
			decided := 0
			objects := map[string]map[source.Encoding][]byte{}
			for _, obj := range s.objects {
				if err := b.other.Create(b.ctx, obj); err != nil {
					t.Fatal(err)
				}
				if s.then != nil && s.then(obj.GetName(), obj) {
					if err := b.other.Status().Update(b.ctx, obj); err != nil {
						t.Fatal(err)
					}
				}
				at := s.path + "/" + obj.GetName()
				raw, _ := get(at, "application/json")
				objects[obj.GetName()] = map[source.Encoding][]byte{source.JSON: raw}
				if s.fields == nil {
					raw, _ = get(at, "application/vnd.kubernetes.protobuf")
					var wrapped runtime.Unknown
					if err := wrapped.Unmarshal(raw[4:]); err != nil {
						t.Fatal(err)
					}
					objects[obj.GetName()][source.Protobuf] = wrapped.Raw
				}
			}
			for _, label := range s.labels {
				selectors := []string{label + "=", label + "!="}
				for _, raw := range objects {
					values := possible(t, raw[source.JSON])
					for _, v := range values {
						selectors = append(selectors, label+"="+v)
					}
				}
				slices.Sort(selectors)
				for _, selector := range slices.Compact(selectors) {
					answer, code := get(s.path+"?fieldSelector="+url.QueryEscape(selector), "application/json")
					var list metav1.PartialObjectMetadataList
					if err := json.Unmarshal(answer, &list); err != nil || code != http.StatusOK {
						t.Fatalf("%s: the server answers %d: %s", selector, code, answer)
					}
					listed := map[string]bool{}
					for _, m := range list.Items {
						listed[m.Name] = true
					}
					for _, content := range []store.Content{{}, {Metadata: true}} {
						st := store.New(store.Options{
							Kind: s.kind, Scheme: scheme.Scheme, FieldSelector: selector, Fields: s.fields, Content: content,
						})
						r := st.Sink("").Replace()
						r.Commit(source.Commit{Version: "1"})
						if !st.Decides() {
							t.Errorf("%s: not decided", selector)
						}
						for name, forms := range objects {
							for enc, raw := range forms {
								want := store.OutOfScope
								if listed[name] {
									want = store.Overlaid
									decided++
								}
								got, err := st.Put(enc, raw)
								again := got == store.AlreadyKnown && seen(st, b, name) && listed[name]
								if err != nil || got != want && !again {
									t.Errorf("%s: %s in %v is %v, %v; the server lists %v", selector, name, enc, got, err, listed)
								}
							}
						}
						st.Close()
					}
				}
			}
			if decided < 2*len(s.labels) {
				t.Errorf("the objects do not tell the fields apart: %d were selected", decided)
			}
		})
	}
	// What the server refuses, or evaluates otherwise than it is written, is not decided.
	for _, s := range []struct{ kind, label, path string }{
		{"ReplicaSet.v1.apps", "status.replicas", "/apis/apps/v1/replicasets"},
		{"Namespace.v1.", "name", "/api/v1/namespaces"},
		{"Pod.v1.", "status.podIPs", ""},
		{"ConfigMap.v1.", "data.a", "/api/v1/configmaps"},
	} {
		kind, _ := schema.ParseKindArg(s.kind)
		st := store.New(store.Options{Kind: *kind, FieldSelector: s.label + "=1"})
		if st.Decides() {
			t.Errorf("%s of %s is decided", s.label, s.kind)
		}
		st.Close()
		if s.path == "" {
			continue
		}
		if answer, code := get(s.path+"?fieldSelector="+s.label+"%3D1", "application/json"); code != http.StatusBadRequest {
			t.Errorf("%s of %s: the server answers %d: %s", s.label, s.kind, code, answer)
		}
	}
}

// seen says whether a store has an object of the bench, or of the cluster.
func seen(st *store.Store, b *bench, name string) bool {
	for _, namespace := range []string{b.namespace, ""} {
		if _, ok := st.Get(store.Key{Namespace: namespace, Name: name}); ok {
			return true
		}
	}
	return false
}

// possible returns the values of an object that a selector can name.
func possible(t *testing.T, raw []byte) (values []string) {
	t.Helper()
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, member := range v {
				if name != "metadata" && name != "managedFields" {
					walk(member)
				}
			}
		case []any:
			for _, item := range v {
				walk(item)
			}
		case string:
			if len(v) < 40 && !strings.ContainsAny(v, ",=!\\") {
				values = append(values, v)
			}
		default:
			values = append(values, fmt.Sprint(v))
		}
	}
	var u map[string]any
	if err := json.Unmarshal(raw, &u); err != nil {
		t.Fatal(err)
	}
	walk(u)
	values = append(values, "true", "false", "0")
	slices.Sort(values)
	return slices.Compact(values)
}

func (b *bench) selectables() []selectable {
	in := "/namespaces/" + b.namespace
	core := corev1.SchemeGroupVersion
	pod := func(name string, change func(*corev1.PodSpec)) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: b.meta(name),
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		change(&p.Spec)
		return p
	}
	cluster := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: b.namespace + "-" + name} }
	template := corev1.PodTemplateSpec{Spec: pod("", func(*corev1.PodSpec) {}).Spec}
	template.Labels = map[string]string{"a": "b"}
	job := template
	job.Spec.RestartPolicy = corev1.RestartPolicyNever
	involved := corev1.ObjectReference{
		Kind: "Pod", Namespace: b.namespace, Name: "web", UID: "u", APIVersion: "v1",
		ResourceVersion: "7", FieldPath: "spec.x",
	}
	now := metav1.NowMicro()
	ns, gone := &corev1.Namespace{ObjectMeta: cluster("live")}, &corev1.Namespace{ObjectMeta: cluster("gone")}
	return []selectable{
		{
			kind: core.WithKind("Pod"), path: "/api/v1" + in + "/pods",
			labels: []string{
				"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
				"status.phase", "status.podIP",
				"status.nominatedNodeName", "spec.host", "metadata.name", "metadata.namespace",
			},
			objects: []client.Object{
				pod("plain", func(*corev1.PodSpec) {}),
				pod("bound", func(s *corev1.PodSpec) { s.NodeName, s.SchedulerName = "node-1", "mine" }),
				pod("host", func(s *corev1.PodSpec) { s.HostNetwork, s.RestartPolicy = true, corev1.RestartPolicyNever }),
				pod("robot", func(s *corev1.PodSpec) {
					s.ServiceAccountName, s.SecurityContext = "robot", &corev1.PodSecurityContext{}
				}),
			},
			then: func(name string, obj client.Object) bool {
				st := &obj.(*corev1.Pod).Status
				st.Phase = corev1.PodRunning
				st.PodIPs = []corev1.PodIP{{IP: "10.0.0.7"}, {IP: "fd00::7"}}
				st.PodIP = "10.0.0.7"
				if name == "robot" {
					st.NominatedNodeName, st.Phase = "node-2", corev1.PodFailed
				}
				return name != "plain"
			},
		},
		{
			kind: core.WithKind("Node"), path: "/api/v1/nodes", labels: []string{"spec.unschedulable", "metadata.name"},
			objects: []client.Object{
				&corev1.Node{ObjectMeta: cluster("open")},
				&corev1.Node{ObjectMeta: cluster("shut"), Spec: corev1.NodeSpec{Unschedulable: true}},
			},
		},
		{
			kind: core.WithKind("Namespace"), path: "/api/v1/namespaces", labels: []string{"status.phase"},
			objects: []client.Object{ns, gone},
			then: func(_ string, obj client.Object) bool {
				if obj == gone { // nobody empties it
					if err := b.other.Delete(b.ctx, obj); err != nil {
						b.t.Error(err)
					}
				}
				return false
			},
		},
		{
			kind: core.WithKind("Secret"), path: "/api/v1" + in + "/secrets", labels: []string{"type"},
			objects: []client.Object{
				b.secret("none", ""), b.secret("opaque", corev1.SecretTypeOpaque),
				b.secret("basic", corev1.SecretTypeBasicAuth),
			},
		},
		{
			kind: core.WithKind("Service"), path: "/api/v1" + in + "/services", labels: []string{"spec.clusterIP", "spec.type"},
			objects: []client.Object{
				&corev1.Service{ObjectMeta: b.meta("plain"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
				&corev1.Service{
					ObjectMeta: b.meta("headless"),
					Spec:       corev1.ServiceSpec{ClusterIP: "None", Ports: []corev1.ServicePort{{Port: 80}}},
				},
				&corev1.Service{
					ObjectMeta: b.meta("out"),
					Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"},
				},
			},
		},
		{
			kind: core.WithKind("ReplicationController"), path: "/api/v1" + in + "/replicationcontrollers",
			labels: []string{"status.replicas"},
			objects: []client.Object{
				&corev1.ReplicationController{
					ObjectMeta: b.meta("none"),
					Spec:       corev1.ReplicationControllerSpec{Template: &template},
				},
				&corev1.ReplicationController{
					ObjectMeta: b.meta("two"),
					Spec:       corev1.ReplicationControllerSpec{Template: &template},
				},
			},
			then: func(name string, obj client.Object) bool {
				obj.(*corev1.ReplicationController).Status.Replicas = 2
				return name == "two"
			},
		},
		{
			kind: batchv1.SchemeGroupVersion.WithKind("Job"), path: "/apis/batch/v1" + in + "/jobs",
			labels: []string{"status.successful"},
			objects: []client.Object{
				&batchv1.Job{ObjectMeta: b.meta("none"), Spec: batchv1.JobSpec{Template: job}},
				&batchv1.Job{ObjectMeta: b.meta("three"), Spec: batchv1.JobSpec{Template: job}},
			},
			then: func(name string, obj client.Object) bool {
				st := &obj.(*batchv1.Job).Status
				st.Succeeded, st.StartTime = 3, &metav1.Time{Time: now.Time}
				st.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
				return name == "three"
			},
		},
		{
			kind:   certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"),
			path:   "/apis/certificates.k8s.io/v1/certificatesigningrequests",
			labels: []string{"spec.signerName"},
			objects: []client.Object{
				signing(b.t, cluster("one"), "example.com/one"), signing(b.t, cluster("two"), "example.com/two"),
			},
		},
		{
			kind: core.WithKind("Event"), path: "/api/v1" + in + "/events",
			labels: []string{
				"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
				"involvedObject.apiVersion",
				"involvedObject.resourceVersion", "involvedObject.fieldPath", "reason", "reportingComponent", "source", "type",
			},
			objects: []client.Object{
				&corev1.Event{
					ObjectMeta: b.meta("old"), InvolvedObject: involved, Reason: "Old", Type: "Warning",
					Source: corev1.EventSource{Component: "kubelet"},
				},
				&corev1.Event{
					ObjectMeta: b.meta("new"), InvolvedObject: corev1.ObjectReference{Namespace: b.namespace}, Reason: "New",
					Type:      "Normal",
					EventTime: now, Action: "a", ReportingController: "example.com/c", ReportingInstance: "i",
				},
			},
		},
		{
			kind: eventsv1.SchemeGroupVersion.WithKind("Event"), path: "/apis/events.k8s.io/v1" + in + "/events",
			labels: []string{
				"regarding.kind", "regarding.namespace", "regarding.name", "regarding.uid", "regarding.apiVersion",
				"regarding.resourceVersion",
				"regarding.fieldPath", "reason", "reportingController", "type",
			},
			objects: []client.Object{
				&eventsv1.Event{
					ObjectMeta: b.meta("newer"), Regarding: involved, Reason: "Newer", Type: "Normal", EventTime: now, Action: "a",
					ReportingController: "example.com/d", ReportingInstance: "i",
				},
			},
		},
		{
			kind: resourcev1.SchemeGroupVersion.WithKind("ResourceSlice"), path: "/apis/resource.k8s.io/v1/resourceslices",
			labels: []string{"spec.nodeName", "spec.driver"},
			objects: []client.Object{
				slice(cluster("one"), "one.example.com", "node-1"), slice(cluster("two"), "two.example.com", ""),
			},
		},
		b.painted(in),
	}
}

func slice(meta metav1.ObjectMeta, driver, node string) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{ObjectMeta: meta, Spec: resourcev1.ResourceSliceSpec{Driver: driver}}
	s.Spec.Pool = resourcev1.ResourcePool{Name: "p", ResourceSliceCount: 1}
	if all := true; node == "" {
		s.Spec.AllNodes = &all
	} else {
		s.Spec.NodeName = &node
	}
	return s
}

func signing(t *testing.T, meta metav1.ObjectMeta, signer string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "x"}},
		key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{ObjectMeta: meta, Spec: certificatesv1.CertificateSigningRequestSpec{
		Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: raw}),
		SignerName: signer, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
	}}
}

// painted is a custom resource with selectable fields.
func (b *bench) painted(in string) selectable {
	kind := schema.GroupVersionKind{Group: "test.fairlead.io", Version: "v1", Kind: "Painted"}
	crd := schemaless(kind)
	v := &crd.Spec.Versions[0]
	v.Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{
		Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
				"colour": {Type: "string"}, "dry": {Type: "boolean"}, "coats": {Type: "integer"},
			}},
		},
	}
	s := selectable{
		kind: kind, path: "/apis/test.fairlead.io/v1" + in + "/painteds",
		fields: map[string]store.FieldValue{},
	}
	for _, path := range []string{".spec.colour", ".spec.dry", ".spec.coats"} {
		v.SelectableFields = append(v.SelectableFields, apiextensionsv1.SelectableField{JSONPath: path})
		s.labels = append(s.labels, path[1:])
		s.fields[path[1:]] = store.FieldPath(path)
	}
	env.InstallCRDs(b.t, clustertest.CRDObjects(crd))
	for i, spec := range []map[string]any{
		{}, {"colour": "red", "dry": true, "coats": int64(2)}, {"colour": "", "dry": false, "coats": int64(12345678901)},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		u.SetGroupVersionKind(kind)
		u.SetNamespace(b.namespace)
		u.SetName(fmt.Sprint("p", i))
		s.objects = append(s.objects, u)
	}
	return s
}

// Own writes beside a selector of the fields of a custom resource are read at once, where it selects them: without a
// question to the server, if the fields were told.
func TestOwnWritesBesideFields(t *testing.T) {
	t.Parallel()
	for name, told := range map[string]bool{"told": true, "not told": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			s := b.painted("")
			cfg := rest.CopyConfig(env.Config(t))
			x := &tap{types: map[string]bool{}}
			cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { x.next = next; return x })
			o := store.CacheOptions{Config: cfg, Mapper: b.own.Mapper(), Scheme: scheme.Scheme}
			if told {
				o.Fields = map[schema.GroupKind]map[string]store.FieldValue{s.kind.GroupKind(): s.fields}
			}
			cache, own, _ := b.running(o)
			h := b.open(cache, store.Request{
				Kind: s.kind, Unstructured: true,
				Options: []source.Option{source.Namespaces(b.namespace), source.Fields("spec.colour=red,spec.dry!=true")},
			})
			before := x.asked()
			u := s.objects[0].(*unstructured.Unstructured)
			write := func(in bool, colour string, dry bool) {
				t.Helper()
				u.Object["spec"] = map[string]any{"colour": colour, "dry": dry}
				b.within("write", soon, func(ctx context.Context) error {
					if u.GetUID() == "" {
						return own.Create(ctx, u)
					}
					return own.Update(ctx, u)
				})
				r, ok := h.Get(client.KeyOf(u))
				if ok != in || ok && r.Version() != u.GetResourceVersion() {
					t.Errorf("%s, dry %v: the store has it: %v", colour, dry, ok)
				}
				got := &unstructured.Unstructured{}
				got.SetGroupVersionKind(s.kind)
				b.within("get", soon, func(ctx context.Context) error { return own.Get(ctx, client.KeyOf(u), got) })
				if got.GetResourceVersion() != u.GetResourceVersion() {
					t.Errorf("%s, dry %v: version %s is read, written was %s", colour, dry, got.GetResourceVersion(),
						u.GetResourceVersion())
				}
			}
			write(true, "red", false)
			write(false, "red", true)
			write(true, "red", false)
			write(false, "blue", false)
			write(false, "green", false)
			write(true, "red", false)
			b.within("delete", soon, func(ctx context.Context) error { return own.Delete(ctx, u) })
			if _, ok := h.Get(client.KeyOf(u)); ok {
				t.Error("the store has what was deleted")
			}
			if n := x.asked() - before; told && n != 0 {
				t.Errorf("the server was asked %d times", n)
			}
			if h.Decides() != told {
				t.Errorf("decides: %v", h.Decides())
			}
		})
	}
}
