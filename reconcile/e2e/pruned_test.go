package e2e_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/testbed"
)

// outdated is a kind whose definition was generated for an older Position.
type outdated struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Status            struct {
		Flow *flow.Position `json:"flow,omitempty"`
	} `json:"status,omitempty"`
}

func (o *outdated) DeepCopyObject() runtime.Object {
	out := &outdated{TypeMeta: o.TypeMeta}
	o.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status.Flow = o.Status.Flow.DeepCopy()
	return out
}

func outdatedDefinition() *apiextensionsv1.CustomResourceDefinition {
	crd := schemaless("Outdated")
	text, number, yes := apiextensionsv1.JSONSchemaProps{Type: "string"}, apiextensionsv1.JSONSchemaProps{Type: "integer"},
		true
	crd.Spec.Versions[0].Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{
		Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"status": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
				"flow": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
					"flow": text, "step": text, "reached": text, "reason": text, "token": text, "error": text,
					"begun": text, "started": text, "wake": text, "deadline": text, "version": number, "generation": number,
					"attempt": number,
					"ended":   {Type: "boolean"}, "checkpoint": {Type: "object", XPreserveUnknownFields: &yes},
					"back": {Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{
						Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"step": text, "started": text},
					}}},
				}},
			}},
		},
	}
	return crd
}

// The error names the fields of the position that the schema of the kind lacks, also nested ones.
func TestPositionFieldsMissingInTheSchema(t *testing.T) {
	env.InstallCRDs(t, clustertest.CRDObjects(outdatedDefinition()))
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(testbed.GroupVersion.WithKind("Outdated"), &outdated{})
	c, err := client.New(client.Options{Config: env.Config(t), Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	own := &outdated{ObjectMeta: metav1.ObjectMeta{Namespace: env.Namespace(t), Name: "web"}}
	if err := c.Create(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	positions := client.NewStatusPosition(c, own, func(o *outdated) **flow.Position { return &o.Status.Flow })
	at := time.Date(2026, 11, 22, 10, 30, 0, 123456789, time.UTC)
	known := flow.Position{
		Flow: "f", Step: "s", Version: 1, Generation: 2, Reason: "delay", Token: "t", Begun: at, Started: at, Wake: at,
		Deadline:   at,
		Checkpoint: json.RawMessage(`{"big": 9007199254740993,  "a": [1, {"b": null}], "c": null}`),
		Back:       []flow.Place{{Step: "b", Started: at}},
	}
	for _, test := range []struct {
		lost   string
		change func(*flow.Position)
	}{
		{"", func(*flow.Position) {}},
		{"left", func(p *flow.Position) { p.Left = &flow.Place{Step: "a", Started: at} }},
		{"returns", func(p *flow.Position) { p.Returns = true }},
		{"last", func(p *flow.Position) { p.Last = true }},
		{"else", func(p *flow.Position) { p.Else = "handler" }},
		{"timedOut", func(p *flow.Position) { p.TimedOut = true }},
		{"back", func(p *flow.Position) { p.Back = []flow.Place{{Step: "b", Attempt: 3, Started: at}} }},
		{"else, last", func(p *flow.Position) { p.Last, p.Else = true, "handler" }},
		{"", func(p *flow.Position) { p.Step = "next" }},
	} {
		p := *known.DeepCopy()
		test.change(&p)
		switch err := positions.Save(t.Context(), "", p); {
		case test.lost == "" && err != nil:
			t.Errorf("the position is kept, but: %v", err)
		case test.lost != "" && (!errors.Is(err, client.ErrNotKept) ||
			!strings.Contains(err.Error(), "cannot keep "+test.lost+" of the position")):
			t.Errorf("without %s: %v", test.lost, err)
		}
	}
}
