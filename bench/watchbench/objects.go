package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/corpus"
)

var (
	podsResource    = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	widgetsResource = schema.GroupVersionResource{Group: "example.fairlead.io", Version: "v1", Resource: "widgets"}
	widgetKind      = schema.GroupVersionKind{Group: "example.fairlead.io", Version: "v1", Kind: "Widget"}
)

// workloads is the number of pod templates.
const workloads = 300

// fixture is the server with its objects.
type fixture struct {
	server        *apiserver.Server
	pods, widgets []apiserver.Encoded
}

// newFixture creates o.objects objects of each kind that a selected peer watches, and one object of the other kinds.
func newFixture(o options) (*fixture, error) {
	n := map[string]int{"pods": 1, "widgets": 1}
	for _, spec := range specs {
		if o.measures(spec.name) {
			n[spec.corpus] = o.objects
		}
	}
	s, err := apiserver.New(apiserver.Options{})
	if err != nil {
		return nil, err
	}
	f := &fixture{server: s, pods: make([]apiserver.Encoded, n["pods"]), widgets: make([]apiserver.Encoded, n["widgets"])}
	gen := corpus.NewPods(1, workloads)
	err = s.Preload(podsResource, len(f.pods), func(i int, version string) apiserver.Encoded {
		f.pods[i] = encodePod(gen.JSON(i, true), version)
		return f.pods[i]
	})
	if err == nil {
		rnd := rand.New(rand.NewPCG(1, 2))
		err = s.Preload(widgetsResource, len(f.widgets), func(i int, version string) apiserver.Encoded {
			f.widgets[i] = newWidget(rnd, i, version)
			return f.widgets[i]
		})
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	s.Compact(0)
	return f, nil
}

// withVersion replaces the resource version in the JSON of an object, which must have one.
func withVersion(raw []byte, version string) []byte {
	const name = `"resourceVersion":"`
	from := bytes.Index(raw, []byte(name)) + len(name)
	to := from + bytes.IndexByte(raw[from:], '"')
	return slices.Concat(raw[:from], []byte(version), raw[to:])
}

// protoWithVersion replaces the resource version in the protobuf of an object: field 6 of the metadata, which is
// field 1. Decoding the object would take twenty times as long, on the cores that the measured client uses.
func protoWithVersion(raw []byte, version string) []byte {
	const metadata, resourceVersion = 1<<3 | 2, 6<<3 | 2
	size, n := binary.Uvarint(raw[1:])
	meta, rest := raw[1+n:1+n+int(size)], raw[1+n+int(size):]
	at := 0
	next := func() int { // the preceding fields are strings, too
		size, n := binary.Uvarint(meta[at+1:])
		return at + 1 + n + int(size)
	}
	for meta[at] != resourceVersion {
		at = next()
	}
	after := meta[next():]
	out := make([]byte, 0, len(raw)+2*binary.MaxVarintLen64+len(version))
	out = binary.AppendUvarint(append(out, metadata), uint64(at+2+len(version)+len(after)))
	out = append(append(out, meta[:at]...), resourceVersion, byte(len(version)))
	return append(append(append(out, version...), after...), rest...)
}

// bare removes kind and apiVersion from the JSON of an object, because the server keeps objects without them. The
// result shares memory with raw.
func bare(raw []byte) []byte {
	return append([]byte{'{'}, raw[bytes.Index(raw, []byte(`"metadata":`)):]...)
}

// encodePod returns both encodings of a pod.
func encodePod(raw []byte, version string) apiserver.Encoded {
	var pod corev1.Pod
	if err := json.Unmarshal(raw, &pod); err != nil {
		panic(err) // our own JSON
	}
	pod.Kind, pod.APIVersion, pod.ResourceVersion = "", "", version
	proto, err := pod.Marshal()
	if err != nil {
		panic(err)
	}
	return apiserver.Encoded{
		Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Labels: pod.Labels,
		JSON: bare(withVersion(raw, version)), Proto: proto,
	}
}

// again returns an object with a new version.
func again(e apiserver.Encoded, version string) apiserver.Encoded {
	e.JSON = withVersion(e.JSON, version)
	if e.Proto != nil {
		e.Proto = protoWithVersion(e.Proto, version)
	}
	return e
}

func pick(rnd *rand.Rand, from ...string) string { return from[rnd.IntN(len(from))] }

// newWidget returns a custom resource of about 1.2 KB.
func newWidget(rnd *rand.Rand, i int, version string) apiserver.Encoded {
	ns, name := fmt.Sprintf("team-%d", i%40), fmt.Sprintf("widget-%06d", i)
	uid := fmt.Sprintf("%08x-%04x-4000-8000-%012x", rnd.Uint32(), i&0xffff, i)
	app := fmt.Sprintf("app-%d", i%300)
	managed := `[{"manager":"operator","operation":"Update","apiVersion":"example.fairlead.io/v1","time":"2026-11-20T10:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{".":{},"f:color":{},"f:endpoints":{},"f:replicas":{},"f:size":{}}}}]`
	raw := fmt.Sprintf(
		`{"kind":"Widget","apiVersion":"example.fairlead.io/v1","metadata":{"name":%q,"namespace":%q,"uid":%q,"resourceVersion":%q,"generation":%d,"creationTimestamp":"2026-11-20T10:00:00Z","labels":{"app":%q,"tier":%q},"annotations":{"example.fairlead.io/checksum":"%016x%016x"},"managedFields":%s},`+
			`"spec":{"color":%q,"size":%d,"replicas":%d,"endpoints":[{"host":"%x.%s.svc.cluster.local","port":%d,"tls":true},{"host":"%x.%s.svc.cluster.local","port":%d,"tls":false}],"template":{"image":"registry.example.com/%s:v%d.%d","args":["--level=%d","--mode=%s"]}},`+
			`"status":{"phase":%q,"ready":%d,"conditions":[{"type":"Ready","status":"True","reason":"AllReady","message":"all %d replicas are ready","lastTransitionTime":"2026-11-20T10:%02d:00Z","observedGeneration":3},{"type":"Synced","status":"True","reason":"UpToDate","lastTransitionTime":"2026-11-20T10:%02d:30Z"}]}}`,
		name, ns, uid, version, 1+rnd.IntN(9), app, pick(rnd, "web", "db", "cache"), rnd.Uint64(), rnd.Uint64(), managed,
		pick(rnd, "red", "green", "blue"), rnd.IntN(100), rnd.IntN(10), rnd.Uint32(), ns, 8000+rnd.IntN(999), rnd.Uint32(),
		ns, 9000+rnd.IntN(999), app, rnd.IntN(9), rnd.IntN(99), rnd.IntN(9), pick(rnd, "fast", "safe"),
		pick(rnd, "Running", "Pending"), rnd.IntN(10), rnd.IntN(10), rnd.IntN(60), rnd.IntN(60),
	)
	return apiserver.Encoded{
		Namespace: ns, Name: name, UID: uid, Labels: map[string]string{"app": app},
		JSON: bare([]byte(raw)),
	}
}

// corpusOf returns a resource and its objects.
func (f *fixture) corpusOf(name string) (schema.GroupVersionResource, []apiserver.Encoded) {
	if name == "widgets" {
		return widgetsResource, f.widgets
	}
	return podsResource, f.pods
}
