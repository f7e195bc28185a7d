package v1alpha1

import (
	stdjson "encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"sigs.k8s.io/yaml"
)

func fullOperation() *Operation {
	at := metav1.NewMicroTime(time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC))
	ttl := duration(time.Hour)
	call := WebhookCallStatus{
		WebhookID: "a", State: PhaseInProgress, RetriesCount: 2, WebhookPollURL: "https://x/poll", LastPollTimestamp: &at,
		AttemptID: "t", StartedAt: &at, FinishedAt: &at, NextAttemptAt: &at, LastStatusCode: 503, Message: "busy",
	}
	return &Operation{
		TypeMeta:   metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: KindOperation},
		ObjectMeta: metav1.ObjectMeta{Name: "app-1", Namespace: "a"},
		Spec: OperationSpec{
			OperationID: "one", OperationType: OperationUpdate, OperationCategory: "c", CorrelationID: "x",
			ResourceReference: ResourceReference{ResourceType: "app", ResourceID: "1"},
			WebhookIDs:        []string{"a", "b"},
			RelatedResources: []RelatedResource{
				{ResourceReference: ResourceReference{ResourceType: "t", ResourceID: "2"}, Lock: true},
			},
			RequestObject: &RequestObject{
				Resource: &apiextensionsv1.JSON{Raw: []byte(`{"a":[1,"b",null]}`)},
				TenantID: "t", Headers: map[string]string{"X": "y"},
			},
			Execution:            ExecutionParallel,
			Timeout:              duration(time.Minute),
			NotifyWebhookID:      "n",
			CompensateWebhookIDs: []string{"u"},
			CancelRequested:      true,
			TTLAfterFinished:     &ttl,
		},
		Status: OperationStatus{
			Phase: PhaseInProgress, OperationID: "one", OperationType: OperationUpdate,
			Conditions: []metav1.Condition{{
				Type: ConditionReady, Status: metav1.ConditionFalse, Reason: ReasonInProgress,
				LastTransitionTime: metav1.NewTime(at.Time.Truncate(time.Second)),
			}},
			Webhooks:      []WebhookCallStatus{call},
			Compensations: []WebhookCallStatus{call},
			Notification:  &call,
			InitializedAt: &at, FinishedAt: &at, ObservedGeneration: 3,
			History: []FinishedOperation{
				{OperationID: "zero", OperationType: OperationCreate, Phase: PhaseFailed, Reason: ReasonTimedOut, FinishedAt: at},
			},
		},
	}
}

func fullWebhook() *Webhook {
	at := metav1.NewMicroTime(time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC))
	secret := SecretAuth{SecretRef: SecretReference{Name: "s"}}
	wh := &Webhook{
		TypeMeta:   metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: KindWebhook},
		ObjectMeta: metav1.ObjectMeta{Name: "cleanup", Namespace: "a"},
		Spec: WebhookSpec{
			Mode:     ModeAsync,
			Request:  WebhookRequest{URL: "https://x", Headers: map[string]string{"X": "y"}},
			Response: WebhookResponse{Success: "true", Gone: "false", Retry: "false", Location: "'x'", Error: "'e'"},
			Poll:     WebhookPoll{Succeeded: "true", Failed: "false", Error: "'e'"},
			Auth: &WebhookAuth{
				Basic: &secret, Bearer: &secret, MTLS: &secret,
				OAuth2:              &OAuth2Auth{TokenURL: "https://x", Scopes: []string{"a"}, SecretRef: secret.SecretRef},
				ServiceAccountToken: &ServiceAccountTokenAuth{Audience: "x", ServiceAccountName: "sa"},
			},
			Signing:       &WebhookSigning{SecretRef: secret.SecretRef},
			TLS:           &WebhookTLS{CASecretRef: &secret.SecretRef, ServerName: "x"},
			Concurrency:   3,
			RatePerSecond: 4,
		},
		Status: WebhookStatus{
			Conditions:         []metav1.Condition{{Type: ConditionValid, Status: metav1.ConditionTrue, Reason: ReasonCompiled}},
			Breaker:            &BreakerStatus{State: BreakerOpen, Until: &at},
			ObservedGeneration: 1,
		},
	}
	wh.Default()
	return wh
}

// Written objects are read back unchanged, by the codec of clients and as unstructured objects.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	for range 2 { // adding twice is no error
		if err := AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
	}
	codec := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Strict: true})
	for _, tt := range []struct {
		reason string
		object runtime.Object
		empty  runtime.Object
	}{
		{"a full Operation", fullOperation(), &Operation{}},
		{"a full Webhook", fullWebhook(), &Webhook{}},
		{"a list", &OperationList{
			TypeMeta: metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: "OperationList"},
			Items:    []Operation{*fullOperation()},
		}, &OperationList{}},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			data, err := runtime.Encode(codec, tt.object.DeepCopyObject())
			if err != nil {
				t.Fatal(err)
			}
			decoded, _, err := codec.Decode(data, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.object, decoded); diff != "" {
				t.Errorf("codec (-want +got):\n%s", diff)
			}
			raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(tt.object.DeepCopyObject())
			if err != nil {
				t.Fatal(err)
			}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, tt.empty); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.object, tt.empty); diff != "" {
				t.Errorf("unstructured (-want +got):\n%s", diff)
			}
		})
	}
}

// Unset fields are not written, in both encodings. A zero duration would be refused, and an empty status would be a
// change.
func TestUnsetIsNotWritten(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		reason string
		object runtime.Object
		want   map[string]any
	}{
		{
			"an Operation", &Operation{Spec: OperationSpec{
				OperationType: OperationCreate, ResourceReference: ResourceReference{ResourceType: "a", ResourceID: "b"},
			}},
			map[string]any{"spec": map[string]any{"operationType": "Create", "resourceType": "a", "resourceID": "b"}},
		},
		{
			"a Webhook", &Webhook{Spec: WebhookSpec{Request: WebhookRequest{URL: "u"}}},
			map[string]any{"spec": map[string]any{"request": map[string]any{"url": "u"}}},
		},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			data, err := stdjson.Marshal(tt.object)
			if err != nil {
				t.Fatal(err)
			}
			var encoded map[string]any
			if err := stdjson.Unmarshal(data, &encoded); err != nil {
				t.Fatal(err)
			}
			converted, err := runtime.DefaultUnstructuredConverter.ToUnstructured(tt.object)
			if err != nil {
				t.Fatal(err)
			}
			for _, got := range []map[string]any{encoded, converted} {
				delete(got, "metadata")
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestCRDs(t *testing.T) {
	t.Parallel()
	var got []string
	for _, crd := range CRDs() {
		if crd.Spec.Group != group || crd.Spec.Scope != apiextensionsv1.NamespaceScoped || len(crd.Spec.Versions) != 1 ||
			crd.Spec.Versions[0].Name != GroupVersion.Version || crd.Spec.Versions[0].Subresources == nil ||
			crd.Spec.Versions[0].Subresources.Status == nil {
			t.Errorf("%s: not a namespaced resource of %s with status", crd.Name, GroupVersion)
		}
		got = append(got, crd.Name, crd.Spec.Names.Kind)
		got = append(got, crd.Spec.Names.ShortNames...)
	}
	if diff := cmp.Diff([]string{"operations.fairlead.io", KindOperation, "op", "webhooks.fairlead.io", KindWebhook, "wh"},
		got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	crds := CRDs()
	crds[0].Spec.Group = "changed"
	if CRDs()[0].Spec.Group != group {
		t.Error("a caller can change the value of the next one")
	}
}

func TestCRDYAML(t *testing.T) {
	t.Parallel()
	var names []string
	for doc := range documents(CRDYAML()) {
		var obj unstructured.Unstructured
		if err := yaml.Unmarshal(doc, &obj.Object); err != nil {
			t.Fatal(err)
		}
		names = append(names, obj.GetKind()+" "+obj.GetName())
	}
	want := []string{"CustomResourceDefinition operations.fairlead.io", "CustomResourceDefinition webhooks.fairlead.io"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("documents (-want +got):\n%s", diff)
	}
}
