package source_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/internal/source"
)

// builtin is an object of a built-in kind, as the API server stores and sends it.
type builtin interface {
	metav1.Object
	runtime.Object
	Marshal() ([]byte, error)
	Unmarshal(raw []byte) error
}

// builtins returns an empty object of each built-in kind that has metadata.
func builtins() (all []builtin) {
	seen := map[reflect.Type]bool{}
	for _, t := range scheme.Scheme.AllKnownTypes() {
		if o, ok := reflect.New(t).Interface().(builtin); ok && !seen[t] {
			seen[t] = true
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b builtin) int { return strings.Compare(fmt.Sprintf("%T", a), fmt.Sprintf("%T", b)) })
	return all
}

func metaFacts(o metav1.Object) facts {
	f := facts{
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID()), Version: o.GetResourceVersion(),
		Generation: o.GetGeneration(),
		Finalizers: len(o.GetFinalizers()),
	}
	if at := o.GetDeletionTimestamp(); at != nil {
		f.Deletion = at.UTC().Format("2006-01-02T15:04:05Z07:00")
	}
	if labels := o.GetLabels(); len(labels) > 0 {
		f.Labels = labels
	}
	for _, r := range o.GetOwnerReferences() {
		f.Owners = append(f.Owners, owner(string(r.UID), r.Kind, r.Name, r.APIVersion, r.Controller != nil && *r.Controller))
	}
	return f
}

// FuzzScanEveryKind: the scan finds the same metadata as the Go type of each built-in kind, in protobuf and in JSON.
func FuzzScanEveryKind(f *testing.F) {
	all := builtins()
	if len(all) < 100 {
		f.Fatalf("only %d kinds", len(all))
	}
	full := fullPod().ObjectMeta
	for i, like := range all {
		o := like.DeepCopyObject().(builtin)
		for _, set := range []func(){
			func() {},
			func() {
				o.SetName(full.Name)
				o.SetNamespace(full.Namespace)
				o.SetUID(full.UID)
				o.SetResourceVersion(full.ResourceVersion)
				o.SetGeneration(full.Generation)
			},
			func() {
				o.SetLabels(full.Labels)
				o.SetOwnerReferences(full.OwnerReferences)
				o.SetFinalizers(full.Finalizers)
				o.SetDeletionTimestamp(full.DeletionTimestamp)
				o.SetManagedFields(full.ManagedFields)
			},
		} {
			set()
			raw, err := o.Marshal()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(uint16(i), raw)
		}
	}
	f.Add(uint16(0), []byte("C00\x43\x08\x01\x44$\x0a\x00")) // nested groups
	f.Fuzz(func(t *testing.T, kind uint16, raw []byte) {
		like := all[int(kind)%len(all)]
		o := reflect.New(reflect.TypeOf(like).Elem()).Interface().(builtin)
		var h source.Header
		err := source.Scan(source.Protobuf, raw, &h)
		if o.Unmarshal(raw) != nil {
			return // the Go type reads all of it, the scan only its metadata
		}
		if err != nil && !wellFormed(raw) {
			return // for example, generated decoders may read a label's key behind the end of the labels
		}
		if err != nil {
			t.Fatalf("%T %x: %v", o, raw, err)
		}
		again, err := o.Marshal()
		if err != nil || !bytes.Equal(again, raw) {
			return // several metadata, or fields of a wrong wire type, which Marshal never writes
		}
		if diff := cmp.Diff(metaFacts(o), factsOf(&h)); diff != "" {
			t.Fatalf("%T %x (-want +got):\n%s", o, raw, diff)
		}
		pruned := reflect.New(reflect.TypeOf(like).Elem()).Interface().(builtin)
		rest := (&source.Object{Raw: raw, Encoding: source.Protobuf, Header: h}).AppendPruned(nil)
		if err := pruned.Unmarshal(rest); err != nil {
			t.Fatalf("%T %x without managedFields: %v", o, raw, err)
		}
		asJSON(t, o)
		o.SetManagedFields(nil)
		if !reflect.DeepEqual(o, pruned) {
			t.Errorf("%T: pruning changed %x", o, raw)
		}
	})
}

// wellFormed reports whether a message and its metadata consist of valid fields.
func wellFormed(raw []byte) bool {
	return fieldsOf(raw, func(number protowire.Number, metadata []byte) bool {
		return number != 1 || fieldsOf(metadata, func(number protowire.Number, value []byte) bool {
			return !slices.Contains([]protowire.Number{8, 9, 11, 12, 13, 17}, number) || fieldsOf(value, nil)
		})
	})
}

// fieldsOf passes each field with a length to also. It reports whether all fields are valid.
func fieldsOf(raw []byte, also func(number protowire.Number, value []byte) bool) bool {
	for len(raw) > 0 {
		number, kind, n := protowire.ConsumeField(raw)
		if n < 0 {
			return false
		}
		if kind == protowire.BytesType && also != nil {
			_, _, head := protowire.ConsumeTag(raw)
			if value, _ := protowire.ConsumeBytes(raw[head:]); !also(number, value) {
				return false
			}
		}
		raw = raw[n:]
	}
	return true
}

// asJSON runs the checks on the object as JSON, if it has a JSON form.
func asJSON(t *testing.T, o builtin) {
	t.Helper()
	raw, err := json.Marshal(o)
	if err != nil {
		return
	}
	var h source.Header
	if err := source.Scan(source.JSON, raw, &h); err != nil {
		t.Fatalf("%T %q: %v", o, raw, err)
	}
	back := reflect.New(reflect.TypeOf(o).Elem()).Interface().(builtin) // without invalid UTF-8
	if err := json.Unmarshal(raw, back); err != nil {
		return
	}
	if diff := cmp.Diff(metaFacts(back), factsOf(&h)); diff != "" {
		t.Fatalf("%T %q (-want +got):\n%s", o, raw, diff)
	}
}
