package e2e_test

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver/crd"
	"github.com/fairlead-io/fairlead/internal/testlimit"
)

const (
	gears     = "/apis/gears.fairlead.io/v1/namespaces/{ns}/gears"
	gearsBeta = "/apis/gears.fairlead.io/v1beta1/namespaces/{ns}/gears"
	crdPath   = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
)

// gearManifest is a definition with everything that schemas can have.
const gearManifest = `
kind: CustomResourceDefinition
apiVersion: apiextensions.k8s.io/v1
metadata: {name: gears.gears.fairlead.io}
spec:
  group: gears.fairlead.io
  scope: Namespaced
  names: {plural: gears, singular: gear, kind: Gear, shortNames: [gr], categories: [all, fairlead]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale:
        {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}
    selectableFields: [{jsonPath: .spec.color}, {jsonPath: .spec.min}]
    additionalPrinterColumns: [{name: Color, type: string, jsonPath: .spec.color}]
    schema: &schema
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            x-kubernetes-validations:
            - {rule: "self.min <= self.max", message: min is above max}
            - rule: "!has(oldSelf.color) || self.color == oldSelf.color"
              message: color is immutable
              reason: FieldValueForbidden
            properties:
              color: {type: string, default: red, enum: [red, blue, green]}
              min: {type: integer, default: 1, minimum: 0}
              max: {type: integer, default: 5, format: int32}
              name: {type: string, maxLength: 5, pattern: "^[a-z]*$"}
              note: {type: string, nullable: true}
              replicas: {type: integer}
              port: {x-kubernetes-int-or-string: true}
              when: {type: string, format: date-time}
              free: {type: object, x-kubernetes-preserve-unknown-fields: true}
              tags: {type: array, x-kubernetes-list-type: set, items: {type: string}}
              plain: {type: array, items: {type: string}}
              labels: {type: object, additionalProperties: {type: string}}
              ratio: {type: number}
              deep:
                type: object
                default: {}
                properties: {a: {type: string, default: x}, b: {type: boolean}}
              ports:
                type: array
                maxItems: 3
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name]
                  properties: {name: {type: string}, port: {type: integer, default: 80}}
              template:
                type: object
                x-kubernetes-embedded-resource: true
                x-kubernetes-preserve-unknown-fields: true
          status:
            type: object
            x-kubernetes-validations:
            - {rule: "!has(self.replicas) || self.replicas < 100"}
            properties:
              replicas: {type: integer}
              selector: {type: string}
              phase: {type: string, enum: [Ready, Failed]}
              conditions:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [type]
                items:
                  type: object
                  required: [type]
                  properties: {type: {type: string}, status: {type: string}}
  - name: v1beta1
    served: true
    storage: false
    deprecated: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              color: {type: string}
              min: {type: integer}
              max: {type: integer}
              old: {type: string, default: o}
              deep: {type: object, properties: {a: {type: string}, b: {type: boolean}}}
`

func gear(meta, spec string) string {
	return `{"kind":"Gear","apiVersion":"gears.fairlead.io/v1","metadata":{` + meta + `},"spec":{` + spec + `}}`
}

func gearBeta(meta, spec string) string {
	return strings.Replace(gear(meta, spec), "io/v1", "io/v1beta1", 1)
}

func TestSameAnswersAboutDefinitions(t *testing.T) {
	t.Parallel()
	cfg := env.Config(t)
	installGears(t, cfg)
	known := knownDifferences(t)
	for _, sc := range definitionScenarios() {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			crds, err := crd.New([]byte(gearManifest))
			if err != nil {
				t.Fatal(err)
			}
			compareServers(t, cfg, env.Namespace(t), sc, nil, known,
				apiserver.Options{CRDs: crds, Resources: apiserver.DefaultResources()})
		})
	}
}

func installGears(t *testing.T, cfg *rest.Config) {
	t.Helper()
	var gears apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal([]byte(gearManifest), &gears); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
	defer cancel()
	c := apiextensions.NewForConfigOrDie(cfg).CustomResourceDefinitions()
	if _, err := c.Create(ctx, &gears, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	settle := get("served", crdPath+"/gears.gears.fairlead.io").until(established)
	run(t, endpoint{hc, cfg.Host, nil}, "none", scenario{"installation", []step{settle}})
}

// established reports whether an answer shows a definition that is served.
func established(code int, body []byte) bool {
	return code == http.StatusOK && bytes.Contains(body, []byte(`"type":"Established","status":"True"`)) ||
		bytes.Contains(body, []byte(`"status":"True","type":"Established"`))
}

func deleting(_ int, body []byte) bool { return bytes.Contains(body, []byte("deletionTimestamp")) }

func gone(code int, _ []byte) bool { return code == http.StatusNotFound }

func definitionScenarios() []scenario {
	cluster := strings.NewReplacer("gears.gears", "cogs.{ns}", "group: gears", "group: {ns}",
		"plural: gears", "plural: cogs",
		"singular: gear", "singular: cog", "kind: Gear", "kind: Cog", "Namespaced", "Cluster", "shortNames: [gr], ", "").
		Replace(gearManifest)
	const cogs = "/apis/{ns}.fairlead.io/v1/cogs"
	cog := func(name, spec string) string {
		return `{"kind":"Cog","apiVersion":"{ns}.fairlead.io/v1","metadata":{"name":"` + name + `"},"spec":{` + spec + `}}`
	}
	return []scenario{
		{"schema", []step{
			post("defaults", gears, gear(named, ``)),
			post("unknown fields", gears, gear(`"name":"b"`, `"odd":1,"deep":{"c":1},"free":{"x":{"y":1}},"min":2`)),
			post("unknown fields, strict", gears+"?fieldValidation=Strict", gear(`"name":"c"`, `"odd":1,"deep":{"c":1}`)),
			post("unknown fields, ignored", gears+"?fieldValidation=Ignore", gear(`"name":"c"`, `"odd":1`)),
			post("nulls", gears, gear(`"name":"d"`, `"color":null,"note":null,"name":null,"deep":null,"tags":null`)),
			post("wrong types", gears, gear(`"name":"e"`, `"color":1,"min":"x","tags":{},"ratio":1,"deep":[]`)),
			post("values", gears, gear(`"name":"e"`, `"color":"odd","min":-1,"max":5000000000,"name":"toolong","when":"x"`)),
			post("pattern", gears, gear(`"name":"e"`, `"name":"A"`)),
			post("too many", gears, gear(`"name":"e"`, `"ports":[{"name":"a"},{"name":"b"},{"name":"c"},{"name":"d"}]`)),
			post("without key", gears, gear(`"name":"e"`, `"ports":[{"port":1}]`)),
			post("key twice", gears, gear(`"name":"e"`, `"ports":[{"name":"a"},{"name":"a"}]`)),
			post("in a set twice", gears, gear(`"name":"e"`, `"tags":["a","a"]`)),
			post("without spec", gears, `{"kind":"Gear","apiVersion":"gears.fairlead.io/v1","metadata":{"name":"e"}}`),
			post("int or string", gears, gear(`"name":"f"`, `"port":"http","ports":[{"name":"a"}],"labels":{"a":"b"},"ratio":1`)),
			post("neither int nor string", gears, gear(`"name":"g"`, `"port":true`)),
			post("embedded", gears, gear(`"name":"h"`,
				`"template":{"kind":"A","apiVersion":"v1","metadata":{"name":"x","odd":1},"data":{"a":1}}`)),
			post("embedded without kind", gears, gear(`"name":"i"`, `"template":{"metadata":{"name":"x"}}`)),
			post("status is ignored", gears, `{"kind":"Gear","apiVersion":"gears.fairlead.io/v1","metadata":{"name":"j"},`+
				`"spec":{},"status":{"phase":"odd"}}`),
			post("dry", gears+"?dryRun=All", gear(`"name":"k"`, ``)),
			merge("null again", gears+"/a", `{"spec":{"color":null,"deep":null,"min":null}}`),
			merge("unknown in a patch", gears+"/a", `{"spec":{"odd":1}}`),
			merge("unknown in a patch, strict", gears+"/a?fieldValidation=Strict", `{"spec":{"odd":1}}`),
			merge("invalid patch", gears+"/a", `{"spec":{"min":"x"}}`),
			replace("update", gears+"/a", gear(`"name":"a","resourceVersion":"{null again.rv}"`, `"min":2`)),
			get("read", gears+"/a"),
			get("selected", gears+"?fieldSelector=spec.min=2"),
			get("selected by another", gears+"?fieldSelector=spec.max=2"),
		}},
		{"rules", []step{
			post("broken", gears, gear(named, `"min":9`)),
			post("held", gears, gear(named, `"min":3`)),
			post("not evaluated", gears, gear(`"name":"b"`, `"min":9,"color":"odd"`)),
			merge("transition", gears+"/a", `{"spec":{"color":"blue"}}`),
			merge("broken by a patch", gears+"/a", `{"spec":{"max":2}}`),
			merge("of the status", gears+"/a/status", `{"status":{"replicas":100}}`),
			merge("status", gears+"/a/status", `{"status":{"replicas":10,"odd":1},"spec":{"min":4}}`),
			merge("enum of the status", gears+"/a/status", `{"status":{"phase":"odd"}}`),
			get("read", gears+"/a"),
		}},
		{"generation of a custom resource", []step{
			post("create", gears, gear(named, ``)),
			merge("labels", gears+"/a", `{"metadata":{"labels":{"a":"b"}}}`),
			merge("spec", gears+"/a", `{"spec":{"min":2}}`),
			merge("what is pruned", gears+"/a", `{"spec":{"odd":2}}`),
			merge("status", gears+"/a/status", `{"status":{"phase":"Ready"}}`),
			merge("scale", gears+"/a/scale", `{"spec":{"replicas":2}}`),
			post("without subresource", gearsBeta, gearBeta(`"name":"b"`, ``)),
			merge("finalizer", gears+"/a", `{"metadata":{"finalizers":["gears.fairlead.io/a"]}}`),
			remove("delete", gears+"/a", ``),
			get("read", gears+"/a"),
		}},
		{"scale of a custom resource", []step{
			post("create", gears, gear(named, ``)),
			get("none", gears+"/a/scale"),
			merge("status", gears+"/a/status", `{"status":{"replicas":2,"selector":"a=b"}}`),
			merge("labels of a scale without replicas", gears+"/a/scale", `{"metadata":{"labels":{"a":"b"}}}`),
			merge("merge", gears+"/a/scale", `{"spec":{"replicas":3}}`),
			get("object", gears+"/a"),
			replace("update", gears+"/a/scale",
				`{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"a","namespace":"{ns}"},"spec":{"replicas":4}}`),
			replace("old version", gears+"/a/scale",
				`{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"a","resourceVersion":"{create.rv}"},"spec":{"replicas":5}}`),
			apply("apply", gears+"/a/scale?fieldManager=x&force=true",
				`{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"a"},"spec":{"replicas":6}}`),
			merge("negative", gears+"/a/scale", `{"spec":{"replicas":-1}}`),
			merge("dry", gears+"/a/scale?dryRun=All", `{"spec":{"replicas":9}}`),
			get("missing", gears+"/none/scale"),
			merge("missing patch", gears+"/none/scale", `{}`),
			post("wrong method", gears+"/a/scale", `{}`),
			get("read", gears+"/a"),
		}},
		{"apply to a custom resource", []step{
			apply("create", gears+"/a?fieldManager=one",
				gear(``, `"ports":[{"name":"x"}],"tags":["a"],"plain":["p"],"labels":{"a":"b"}`)),
			apply("another", gears+"/a?fieldManager=two", gear(``, `"ports":[{"name":"y","port":1}],"tags":["b"],"labels":{"c":"d"}`)),
			apply("conflict", gears+"/a?fieldManager=two", gear(``, `"plain":["q"]`)),
			apply("forced", gears+"/a?fieldManager=two&force=true", gear(``, `"plain":["q"],"ports":[{"name":"x","port":5}]`)),
			apply("less", gears+"/a?fieldManager=one", gear(``, `"min":2`)),
			apply("unknown field", gears+"/a?fieldManager=one", gear(``, `"odd":2`)),
			apply("wrong type", gears+"/a?fieldManager=one", gear(``, `"min":"x"`)),
			apply("invalid", gears+"/a?fieldManager=one", gear(``, `"min":9`)),
			apply("status", gears+"/a/status?fieldManager=one",
				`{"kind":"Gear","apiVersion":"gears.fairlead.io/v1","status":{"conditions":[{"type":"A","status":"True"}]}}`),
			apply("status of another", gears+"/a/status?fieldManager=two",
				`{"kind":"Gear","apiVersion":"gears.fairlead.io/v1","status":{"conditions":[{"type":"B","status":"True"}]}}`),
			get("read", gears+"/a"),
		}},
		{"versions of a custom resource", []step{
			post("create", gears, gear(named, `"color":"blue","max":7`)),
			get("read in the other", gearsBeta+"/a"),
			merge("patch in the other", gearsBeta+"/a", `{"spec":{"min":3}}`),
			get("read", gears+"/a"),
			post("create in the other", gearsBeta, gearBeta(`"name":"b"`, `"color":"blue","old":"x"`)),
			get("read what the other created", gears+"/b"),
			get("list of the other", gearsBeta),
			get("no subresource there", gearsBeta+"/a/scale"),
			apply("apply in the other", gearsBeta+"/a?fieldManager=x&force=true", gearBeta(``, `"min":2`)),
			apply("apply", gears+"/a?fieldManager=x&force=true", gear(``, `"min":3`)),
			watchStep("watch of the other", gearsBeta+"?watch=1&resourceVersion={create.rv}&timeoutSeconds=2"),
			events("events of the other", "watch of the other", 4),
			remove("delete in the other", gearsBeta+"/a", ``),
		}},
		{"life of a definition", []step{
			get("before", cogs),
			post("invalid", crdPath, asJSON(strings.Replace(cluster, "Cluster", "Odd", 1))),
			post("create", crdPath, asJSON(cluster)),
			post("again", crdPath, asJSON(cluster)),
			get("settled", crdPath+"/cogs.{ns}.fairlead.io").until(established),
			post("object", cogs, cog("a", ``)).until(func(code int, _ []byte) bool { return code != http.StatusNotFound }),
			post("kept object", cogs, strings.Replace(cog("b", ``), `"name"`, `"finalizers":["gears.fairlead.io/a"],"name"`, 1)),
			get("in a namespace", "/apis/{ns}.fairlead.io/v1/namespaces/{ns}/cogs"),
			remove("delete", crdPath+"/cogs.{ns}.fairlead.io", ``).until(func(code int, _ []byte) bool { return code == 200 }),
			get("its object", cogs+"/a").until(gone),
			get("its kept object", cogs+"/b").until(deleting),
			post("new object", cogs, cog("c", ``)),
			merge("finalizer away", cogs+"/b", `{"metadata":{"finalizers":null}}`),
			get("gone", crdPath+"/cogs.{ns}.fairlead.io").until(gone),
		}},
	}
}

// asJSON converts a manifest, whose text may contain {ns}.
func asJSON(manifest string) string {
	b, err := yaml.YAMLToJSON([]byte(strings.ReplaceAll(manifest, "{ns}", "__ns__")))
	if err != nil {
		return err.Error()
	}
	return strings.ReplaceAll(string(b), "__ns__", "{ns}")
}
