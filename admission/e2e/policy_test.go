package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/testbed/hookbed"
)

// The policies in the documentation have the documented effects.
func TestPolicies(t *testing.T) {
	t.Parallel()
	b := hookbed.New(t, env.Config(t))
	manifest, err := os.ReadFile("../testdata/policies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Options{Config: env.Config(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	for n := 0; ; n++ {
		var o unstructured.Unstructured
		if err := documents.Decode(&o); errors.Is(err, io.EOF) && n == 4 {
			break
		} else if err != nil {
			t.Fatalf("document %d: %v", n, err)
		}
		if err := c.Apply(b.Ctx, &o, client.Force()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			gone := &unstructured.Unstructured{}
			gone.SetGroupVersionKind(o.GroupVersionKind())
			gone.SetName(o.GetName())
			c, err := client.New(client.Options{Config: env.Config(t)})
			if err == nil {
				err = c.Delete(context.WithoutCancel(b.Ctx), gone)
				c.Close()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	cms := b.API.CoreV1().ConfigMaps(env.Namespace(t))
	create := func(name, title string, opts metav1.CreateOptions) (map[string]string, error) {
		m := hookbed.ConfigMap(name)
		m.Labels = map[string]string{"example.com/kind": "page"}
		if title != "" {
			m.Data["title"] = title
		}
		got, err := cms.Create(b.Ctx, m, opts)
		if err != nil {
			return nil, err
		}
		return got.Data, nil
	}
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	b.Eventually("the policies are in force", func() string {
		_, err := create("probe", "", dry)
		got, other := create("probe", "x", dry)
		if !strings.Contains(hookbed.Text(err), "a title of at most 40") || other != nil || got["path"] != "/probe" {
			return fmt.Sprint("got ", err, other, got)
		}
		return ""
	})
	if _, err := create("long", strings.Repeat("x", 41), dry); !strings.Contains(hookbed.Text(err),
		"a title of at most 40") {
		t.Errorf("a long title: %v", err)
	}
	if _, err := create("home", "Home", metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err = cms.Patch(b.Ctx, "home", types.MergePatchType, []byte(`{"data":{"path":"/x"}}`), metav1.PatchOptions{})
	if !strings.Contains(hookbed.Text(err), "the path stays /home") {
		t.Errorf("another path: %v", err)
	}
	if _, err := cms.Patch(b.Ctx, "home", types.MergePatchType, []byte(`{"data":{"title":"Start"}}`),
		metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
}
