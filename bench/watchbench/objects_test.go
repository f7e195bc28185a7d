package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/internal/corpus"
)

// TestAgain decodes an object in both encodings after its version was replaced in the bytes.
func TestAgain(t *testing.T) {
	t.Parallel()
	first := encodePod(corpus.NewPods(1, 3).JSON(7, true), "9")
	for _, version := range []string{"9", "10", "123456789012345"} {
		e := again(first, version)
		var fromProto, fromJSON, want corev1.Pod
		if err := want.Unmarshal(first.Proto); err != nil {
			t.Fatal(err)
		}
		want.ResourceVersion = version
		if err := fromProto.Unmarshal(e.Proto); err != nil {
			t.Fatalf("version %s: %v", version, err)
		}
		if err := json.Unmarshal(e.JSON, &fromJSON); err != nil {
			t.Fatalf("version %s: %v", version, err)
		}
		if diff := cmp.Diff(want, fromProto); diff != "" {
			t.Errorf("protobuf at version %s (-want +got):\n%s", version, diff)
		}
		if fromJSON.ResourceVersion != version || fromJSON.Name != want.Name || fromJSON.Kind != "" {
			t.Errorf("JSON at version %s is %s %q at %s", version, fromJSON.Name, fromJSON.Kind, fromJSON.ResourceVersion)
		}
		exact, err := want.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(exact, e.Proto) {
			t.Errorf("protobuf at version %s differs from the output of Marshal", version)
		}
	}
}
