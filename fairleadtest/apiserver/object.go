package apiserver

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"
)

// object is one immutable state of one object. Each encoding is created once, at first use.
type object struct {
	table               *table
	rev                 uint64
	namespace, name     string
	uid, version        string
	labels              labels.Set
	mu                  sync.Mutex
	content             map[string]any // read-only; nil if the object was loaded as bytes
	bare                []byte         // JSON without kind and apiVersion: {"metadata":…}
	proto               []byte         // protobuf without envelope
	metaJSON, metaProto []byte         // PartialObjectMetadata
	poisoned            bool           // by Poison: the bytes are damaged
	origin              *object        // the stored object of which this is another form; nil: this one is stored
	forms               map[*table]*object
	verbatim            bool // bare is sent unchanged, including kind and apiVersion
}

func (o *object) key() string { return objectKey(o.namespace, o.name) }

// newObject takes ownership of content, whose metadata must be final.
func newObject(t *table, rev uint64, content map[string]any) *object {
	u := unstructured.Unstructured{Object: content}
	return &object{
		table: t, rev: rev, namespace: u.GetNamespace(), name: u.GetName(), uid: string(u.GetUID()),
		version: u.GetResourceVersion(), labels: u.GetLabels(), content: content,
	}
}

// read returns the content, which is shared and must not be modified.
func (o *object) read() (map[string]any, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.readLocked()
}

// readLocked decodes an object loaded as bytes at each call, since content takes many times the memory of the bytes.
func (o *object) readLocked() (map[string]any, error) {
	if o.content != nil {
		return o.content, nil
	}
	var m map[string]any
	if err := utiljson.Unmarshal(o.bare, &m); err != nil {
		return nil, fmt.Errorf("cannot decode the stored object %s: %w", o.key(), err)
	}
	m["kind"], m["apiVersion"] = o.table.res.Kind, o.table.res.apiVersion()
	return m, nil
}

// copy returns the content as an object that the caller owns.
func (o *object) copy() (*unstructured.Unstructured, error) {
	m, err := o.read()
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: runtime.DeepCopyJSON(m)}, nil
}

// bareJSON returns the JSON without kind and apiVersion.
func (o *object) bareJSON() ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.bare != nil {
		return o.bare, nil
	}
	rest := make(map[string]any, len(o.content))
	for k, v := range o.content {
		if k != "kind" && k != "apiVersion" {
			rest[k] = v
		}
	}
	b, err := json.Marshal(rest)
	if err != nil {
		return nil, err
	}
	o.bare = b
	return b, nil
}

// protoBytes returns the protobuf message of a built-in object, without the envelope.
func (o *object) protoBytes() ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.proto != nil {
		return o.proto, nil
	}
	b, err := o.encodeProtoLocked()
	if err != nil && o.poisoned {
		// An object that cannot be encoded is also damaged here: valid metadata, then a field with truncated content.
		if b, err = o.metaProtoLocked(); err == nil {
			b = append(bytes.Clone(b), 0x12, 0x01, 0xff)
		}
	}
	o.proto = b
	return b, err
}

func (o *object) encodeProtoLocked() ([]byte, error) {
	m, err := o.readLocked()
	if err != nil {
		return nil, err
	}
	typed, err := o.table.res.newTyped()
	if err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(m, typed); err != nil {
		return nil, err
	}
	return marshalProto(typed)
}

// partialJSON and partialProto return the PartialObjectMetadata of the object.
func (o *object) partialJSON() ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.metaJSON != nil {
		return o.metaJSON, nil
	}
	b, err := o.metadataLocked()
	if err != nil {
		return nil, err
	}
	o.metaJSON = []byte(partialPrefix + `"metadata":` + string(b) + "}")
	return o.metaJSON, nil
}

// metadataLocked returns the JSON of the metadata.
func (o *object) metadataLocked() ([]byte, error) {
	if o.content != nil {
		return json.Marshal(o.content["metadata"])
	}
	var m struct {
		Metadata json.RawMessage `json:"metadata"`
	}
	if err := json.Unmarshal(o.bare, &m); err != nil {
		return nil, fmt.Errorf("cannot decode the stored object %s: %w", o.key(), err)
	}
	return m.Metadata, nil
}

func (o *object) partialProto() ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.metaProtoLocked()
}

func (o *object) metaProtoLocked() ([]byte, error) {
	if o.metaProto != nil {
		return o.metaProto, nil
	}
	if o.content == nil && !o.poisoned && bytes.HasPrefix(o.proto, []byte{1<<3 | 2}) { // both begin with metadata
		if n, k := binary.Uvarint(o.proto[1:]); k > 0 && n <= uint64(len(o.proto)-1-k) {
			o.metaProto = o.proto[:1+k+int(n)]
			return o.metaProto, nil
		}
	}
	m, err := o.readLocked()
	if err != nil {
		return nil, err
	}
	meta, _ := m["metadata"].(map[string]any)
	b, err := partialProto(meta)
	o.metaProto = b
	return b, err
}

// withVersion returns the same state with another version, as in a DELETED event.
func (o *object) withVersion(v versioner, rev uint64) *object {
	m, err := o.copy()
	if err != nil { // undecodable bytes stay unchanged
		return &object{
			table: o.table, rev: rev, namespace: o.namespace, name: o.name, uid: o.uid, version: o.version,
			labels: o.labels, bare: o.bare, proto: o.proto, metaJSON: o.metaJSON, metaProto: o.metaProto, poisoned: o.poisoned,
			verbatim: o.verbatim,
		}
	}
	m.SetResourceVersion(v.format(rev))
	out := newObject(o.table, rev, m.Object)
	out.poisoned = o.poisoned
	return out
}

// normalize converts content to the form that a server stores. For a built-in kind it drops unknown fields and refuses
// fields of a wrong type. Every number becomes an int64 or a float64.
func normalize(t *table, content map[string]any) (map[string]any, error) {
	if t.typed {
		typed, err := t.res.newTyped()
		if err != nil {
			return nil, err
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, typed); err != nil {
			return nil, err
		}
		out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
		if err != nil {
			return nil, err
		}
		content = out
	}
	if meta, ok := content["metadata"].(map[string]any); ok && meta["creationTimestamp"] == nil {
		delete(meta, "creationTimestamp")
	}
	content["kind"], content["apiVersion"] = t.res.Kind, t.res.apiVersion()
	if t.custom != nil {
		return content, t.custom.complete(content)
	}
	return content, nil
}

// toContent converts a user's object to a map that the caller owns. Its kind may be one that the user has added to the
// scheme of client-go.
func toContent(obj runtime.Object) (map[string]any, error) {
	if u, ok := obj.(runtime.Unstructured); ok {
		b, err := json.Marshal(u.UnstructuredContent())
		if err != nil {
			return nil, err
		}
		var m map[string]any
		return m, utiljson.Unmarshal(b, &m)
	}
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	if gvks, _, err := scheme.Scheme.ObjectKinds(obj); err == nil && len(gvks) > 0 {
		m["kind"], m["apiVersion"] = gvks[0].Kind, gvks[0].GroupVersion().String()
	}
	return m, nil
}
