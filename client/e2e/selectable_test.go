package e2e_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/internal/store"
)

// selectable is a kind, the fields that the server can select by, and objects with different values of them.
type selectable struct {
	kind    schema.GroupVersionKind
	path    string // the path below the server's URL
	labels  []string
	objects []client.Object
	then    func(name string, obj client.Object) bool // changes the status of an object
	fields  map[string]store.FieldValue
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
				if obj == gone { // no controller empties it
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

// painted returns a custom resource with selectable fields.
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
