package scenario

import (
	"bytes"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// encode returns a ConfigMap in the encoding that a watch of the subject uses.
func (r *Run) encode(u *unstructured.Unstructured) []byte {
	if !r.Cfg.Protobuf {
		b, err := json.Marshal(u)
		if err != nil {
			panic(err)
		}
		return b
	}
	cm := &corev1.ConfigMap{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, cm); err != nil {
		panic(err)
	}
	var b bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(cm, &b); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func replaceAll(old, now string) func([]byte) []byte {
	return func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(old), []byte(now)) }
}
