package store_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

var secretKind = corev1.SchemeGroupVersion.WithKind("Secret")

func secret(version int, word string) *corev1.Secret {
	s := &corev1.Secret{Data: map[string][]byte{"password": []byte(word)}, Type: "Opaque"}
	s.Namespace, s.Name, s.UID = "team-a", "db", "00000000-0000-4000-8000-000000000001"
	s.ResourceVersion = fmt.Sprint(version)
	s.Labels = map[string]string{"app": "db"}
	s.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: word, "note": "it stays"}
	managed := metav1.ManagedFieldsEntry{
		Manager: "kubectl", Operation: "Update",
		FieldsV1: metav1.NewFieldsV1(`{"f:data":{}}`),
	}
	s.ManagedFields = []metav1.ManagedFieldsEntry{managed}
	return s
}

// sent returns an object as a server sends it.
func sent(t testing.TB, enc source.Encoding, o interface{ Marshal() ([]byte, error) }) *source.Object {
	t.Helper()
	raw, err := json.Marshal(o)
	if enc == source.Protobuf {
		raw, err = o.Marshal()
	}
	if err != nil {
		t.Fatal(err)
	}
	out := &source.Object{Raw: raw, Encoding: enc}
	if err := source.Scan(enc, raw, &out.Header); err != nil {
		t.Fatal(err)
	}
	return out
}

const lastApplied = "metadata.annotations[" + corev1.LastAppliedConfigAnnotation + "]"

var withoutSecrets = store.Content{Drop: []string{"data", lastApplied}}

// forms are the types that a secret can be read as.
var forms = []reflect.Type{
	reflect.TypeFor[corev1.Secret](), reflect.TypeFor[metav1.PartialObjectMetadata](),
	reflect.TypeFor[unstructured.Unstructured](),
}

func secrets(t testing.TB, content store.Content) *store.Store {
	return newStore(t, store.Options{Kind: secretKind, Scheme: scheme.Scheme, Namespaced: true, Content: content})
}

func TestContentCheck(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		reason  string
		content store.Content
		want    string
	}{
		{"nothing", store.Content{}, ""},
		{"fields and keys", withoutSecrets, ""},
		{"a field that is never kept", store.Content{Drop: []string{"metadata.managedFields"}}, ""},
		{"exceptions", withoutData, ""},
		{"exceptions from nothing", store.Content{Keep: kubeconfigs}, "Drop names no fields"},
		{"malformed", store.Content{Drop: []string{"data."}}, "malformed path"},
		{"through a list", store.Content{Drop: []string{"spec.containers[*].env"}}, "does not go through lists"},
		{"all metadata", store.Content{Drop: []string{"metadata"}}, "the store finds objects by it"},
		{"the name", store.Content{Drop: []string{"metadata.name"}}, "the store finds objects by it"},
		{"a label", store.Content{Drop: []string{"metadata.labels[app]"}}, "the store finds objects by it"},
		{"the kind", store.Content{Drop: []string{"kind"}}, "the store finds objects by it"},
		{
			"a contradiction",
			store.Content{ManagedFields: true, Drop: []string{"metadata.managedFields"}},
			"ManagedFields says",
		},
	} {
		err := test.content.Check()
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", test.reason, err, test.want)
		}
	}
}

// A dropped field is absent from the record, from decoded objects, and from an overlaid answer to an own write. It is
// also absent from quarantined objects and from the disk.
func TestDroppedFieldsAreAbsent(t *testing.T) {
	t.Parallel()
	for _, enc := range []source.Encoding{source.JSON, source.Protobuf} {
		s := secrets(t, withoutSecrets)
		sink := s.Sink("")
		r := sink.Replace()
		if err := r.Put(sent(t, enc, secret(5, "hunter2"))); err != nil {
			t.Fatal(err)
		}
		r.Commit(source.Commit{Version: "5"})
		check := func(when string) {
			t.Helper()
			rec, _ := s.Get(store.Key{Namespace: "team-a", Name: "db"})
			typed, err := store.As[corev1.Secret](rec)
			if err != nil {
				t.Fatal(err)
			}
			if len(typed.Data) > 0 || !maps.Equal(typed.Annotations, map[string]string{"note": "it stays"}) ||
				typed.Type != "Opaque" {
				t.Errorf("%v, %s: read as %v", enc, when, typed)
			}
			own := &corev1.Secret{}
			if err := rec.DecodeInto(own); err != nil || len(own.Data) > 0 {
				t.Errorf("%v, %s: decoded as %v, %v", enc, when, own, err)
			}
			if bytes.Contains(rec.Raw(), []byte("hunter")) || bytes.Contains(rec.Raw(), []byte("kubectl")) {
				t.Errorf("%v, %s: %q is kept", enc, when, rec.Raw())
			}
			if got := rec.Dropped(); !slices.Equal(got, []string{"data", lastApplied}) {
				t.Errorf("%v, %s: dropped %q", enc, when, got)
			}
		}
		check("listed")
		if err := sink.Apply(source.Modified, sent(t, enc, secret(6, "hunter3"))); err != nil {
			t.Fatal(err)
		}
		check("changed")
		result, err := s.Put(source.JSON, sent(t, source.JSON, secret(7, "hunter4")).Raw)
		if err != nil || result != store.Overlaid {
			t.Fatal(result, err)
		}
		check("laid over")
		dir := t.TempDir()
		if err := s.Save(dir, "cluster"); err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		raw, err := os.ReadFile(files[0])
		if err != nil || bytes.Contains(raw, []byte("hunter")) || bytes.Contains(raw, []byte("aHVudGVy")) {
			t.Errorf("%v: the file has the dropped field, %v", enc, err)
		}
		nothing := secret(8, "hunter5")
		nothing.Data, nothing.Annotations = nil, nil
		if err := sink.Apply(source.Modified, sent(t, enc, nothing)); err != nil {
			t.Fatal(err)
		}
		if rec, _ := s.Get(store.Key{Namespace: "team-a", Name: "db"}); rec.Dropped() != nil {
			t.Errorf("%v: a store without a content reports %q as dropped", enc, rec.Dropped())
		}
	}
}

// An object that cannot be read is quarantined without the dropped fields, or without its bytes.
func TestQuarantineLacksDroppedFields(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ reason, raw, want string }{
		{
			"the field can be cut out", `{"metadata":{"name":7},"data":"hunter2","type":"Opaque"}`,
			`{"metadata":{"name":7},"type":"Opaque"}`,
		},
		{"malformed JSON", `{"metadata":{"name":"db"},"data":"hunter2`, ``},
		{"no JSON object", `["hunter2"]`, ``},
	} {
		s := secrets(t, withoutSecrets)
		sink := s.Sink("")
		list(t, sink, 1)
		c := s.Subscribe(store.SubscribeOptions{})
		sink.Quarantine(source.Quarantined{
			Namespace: "team-a", Name: "db", Raw: []byte(test.raw),
			Err: errors.New("unreadable"),
		})
		q := s.Quarantined()
		if len(q) != 1 || string(q[0].Raw) != test.want {
			t.Errorf("%s: quarantined is %q, want %q", test.reason, q[0].Raw, test.want)
		}
		c.Close()
	}
}

// An object with a list on the path of a dropped field is refused, since the field cannot be cut out. Its deletion is
// applied.
func TestListOnThePathOfADroppedField(t *testing.T) {
	t.Parallel()
	s := newStore(t, store.Options{Content: store.Content{Drop: []string{"spec.items.secret"}}})
	sink := s.Sink("")
	x := thing{name: "a", uid: "u", version: 5, more: `,"spec":{"items":{"secret":"hunter2","rest":1}}`}
	list(t, sink, 5, x)
	rec, _ := s.Get(x.key())
	if strings.Contains(string(rec.Raw()), "hunter2") || !strings.Contains(string(rec.Raw()), `"items":{"rest":1}`) {
		t.Errorf("the store has %s", rec.Raw())
	}
	x.version, x.more = 6, `,"spec":{"items":[{"secret":"hunter2"}]}`
	if err := sink.Apply(source.Modified, x.object()); err == nil || !strings.Contains(err.Error(), "it is a list") {
		t.Errorf("error %v", err)
	}
	if err := sink.Apply(source.Deleted, x.object()); err != nil || s.Len() != 0 {
		t.Errorf("after its deletion there are %d objects, error %v", s.Len(), err)
	}
}

// A store with a malformed content accepts no object.
func TestMalformedContentAcceptsNothing(t *testing.T) {
	t.Parallel()
	for _, s := range []*store.Store{
		newStore(t, store.Options{Content: store.Content{Drop: []string{"data."}}}),
		newStore(t, store.Options{ // in protobuf, where the field cannot be found
			Content: store.Content{Drop: []string{"spec.nothing"}}, Kind: podKind, Scheme: scheme.Scheme,
		}),
	} {
		enc := source.JSON
		if s.Options().Scheme != nil {
			enc = source.Protobuf
		}
		err := s.Sink("").Apply(source.Added, sent(t, enc, secret(5, "hunter2")))
		if err == nil || s.Len() > 0 {
			t.Errorf("%v: the object is accepted, error %v", enc, err)
		}
	}
}

// managedFields are kept if the content asks for them. Only then does a difference in them count as a change.
func TestManagedFields(t *testing.T) {
	t.Parallel()
	for _, enc := range []source.Encoding{source.JSON, source.Protobuf} {
		for _, keep := range []bool{false, true} {
			s := secrets(t, store.Content{ManagedFields: keep})
			sink := s.Sink("")
			relist := func(x *corev1.Secret, epoch bool) {
				r := sink.Replace()
				if err := r.Put(sent(t, enc, x)); err != nil {
					t.Fatal(err)
				}
				r.Commit(source.Commit{Version: x.ResourceVersion, Epoch: epoch})
			}
			relist(secret(5, "x"), false)
			s.Flush()
			c := s.Subscribe(store.SubscribeOptions{})
			drain(c)
			relist(secret(5, "x"), false)
			if got := drain(c); len(got) > 0 {
				t.Errorf("%v, kept %v: events of a list of the same: %v", enc, keep, summary(got))
			}
			// The same version with other managedFields, as after a rollback.
			other := secret(5, "x")
			other.ManagedFields[0].Manager = "helm"
			relist(other, true)
			events := drain(c)
			modified := func(e store.Event) bool { return e.Type == store.Modified }
			if slices.ContainsFunc(events, modified) != keep {
				t.Errorf("%v, kept %v: events of other managedFields: %v", enc, keep, summary(events))
			}
			if _, err := s.Put(source.JSON, sent(t, source.JSON, secret(6, "x")).Raw); err != nil {
				t.Fatal(err)
			}
			rec, _ := s.Get(store.Key{Namespace: "team-a", Name: "db"})
			for _, typ := range forms {
				o, err := rec.As(typ)
				if err != nil {
					t.Fatal(err)
				}
				if got := len(o.(metav1.Object).GetManagedFields()) > 0; got != keep {
					t.Errorf("%v, kept %v: managedFields of an own write as %s: %v", enc, keep, typ, got)
				}
			}
		}
	}
}

// A transform runs once for each decoded object, and the stored bytes are not transformed.
func TestTransform(t *testing.T) {
	t.Parallel()
	for _, enc := range []source.Encoding{source.JSON, source.Protobuf} {
		calls := 0
		s := secrets(t, store.Content{Transform: func(o any) (any, error) {
			calls++
			m := o.(metav1.Object)
			m.SetAnnotations(map[string]string{"seen": "true"})
			if p, ok := o.(*metav1.PartialObjectMetadata); ok {
				return p.DeepCopy(), nil // another object of the type
			}
			return o, nil
		}})
		if err := s.Sink("").Apply(source.Added, sent(t, enc, secret(5, "x"))); err != nil {
			t.Fatal(err)
		}
		rec, _ := s.Get(store.Key{Namespace: "team-a", Name: "db"})
		for _, typ := range forms {
			own := reflect.New(typ).Interface()
			err := rec.DecodeInto(own)
			if m := own.(metav1.Object); err != nil || m.GetAnnotations()["seen"] != "true" || m.GetName() != "db" {
				t.Errorf("%v: own %s: %v, %v", enc, typ, own, err)
			}
			before := calls
			for range 3 {
				if o, err := rec.As(typ); err != nil || o.(metav1.Object).GetAnnotations()["seen"] != "true" {
					t.Errorf("%v: %s: %v, %v", enc, typ, o, err)
				}
			}
			if calls != before+1 {
				t.Errorf("%v: %s was transformed %d times", enc, typ, calls-before)
			}
		}
		if kept, err := rec.AppendJSON(nil); err != nil || strings.Contains(string(kept), "seen") {
			t.Errorf("%v: stored is %s, %v", enc, kept, err)
		}
	}
}

func TestTransformThatFails(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		reason    string
		transform func(any) (any, error)
		want      string
	}{
		{"an error", func(any) (any, error) { return nil, errors.New("it cannot") }, "the transform failed: it cannot"},
		{"a panic", func(any) (any, error) { panic("boom") }, "the transform panicked: boom"},
		{"nothing", func(any) (any, error) { return nil, nil }, "returned a <nil> instead of a *v1.Secret"},
		{"a nil pointer", func(any) (any, error) { return (*corev1.Secret)(nil), nil }, "instead of a *v1.Secret"},
		{"another type", func(any) (any, error) { return &corev1.Pod{}, nil }, "returned a *v1.Pod instead of a *v1.Secret"},
	} {
		s := secrets(t, store.Content{Transform: test.transform})
		if err := s.Sink("").Apply(source.Added, sent(t, source.JSON, secret(5, "x"))); err != nil {
			t.Fatal(err)
		}
		rec, _ := s.Get(store.Key{Namespace: "team-a", Name: "db"})
		_, shared := store.As[corev1.Secret](rec)
		own := rec.DecodeInto(&corev1.Secret{})
		for _, err := range []error{shared, own} {
			if _, is := errors.AsType[*store.DecodeError](err); !is || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: error %v, want %q", test.reason, err, test.want)
			}
		}
	}
}

// A file of another content is not loaded: it lacks wanted fields or has dropped ones.
func TestAFileOfAnotherContentIsNotLoaded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	contents := []store.Content{{}, {ManagedFields: true}, withoutSecrets, {Drop: []string{"data"}}}
	for i, content := range contents {
		s := secrets(t, content)
		r := s.Sink("").Replace()
		if err := r.Put(sent(t, source.JSON, secret(5+i, "x"))); err != nil {
			t.Fatal(err)
		}
		r.Commit(source.Commit{Version: fmt.Sprint(5 + i)})
		if err := s.Save(dir, "cluster"); err != nil {
			t.Fatal(err)
		}
	}
	for i, content := range contents {
		s := secrets(t, content)
		if err := s.Load(dir, "cluster"); err != nil {
			t.Fatal(err)
		}
		if rec, _ := s.Get(store.Key{Namespace: "team-a", Name: "db"}); rec.Version() != fmt.Sprint(5+i) {
			t.Errorf("content %d has version %s", i, rec.Version())
		}
		files, err := filepath.Glob(filepath.Join(dir, "*.store"))
		if err != nil || len(files) != len(contents) {
			t.Errorf("files %v, %v", files, err)
		}
		for _, file := range files { // whatever its name
			alone := t.TempDir()
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(alone, filepath.Base(store.FileName(s))), raw, 0o600); err != nil {
				t.Fatal(err)
			}
			again := secrets(t, content)
			if err := again.Load(alone, "cluster"); (err == nil) != (filepath.Base(file) == store.FileName(s)) {
				t.Errorf("content %d from %s: %v", i, filepath.Base(file), err)
			}
		}
	}
}

// The answer to an own patch may include a foreign change of a dropped field. It therefore does not count as an echo.
func TestEchoesWithDroppedFields(t *testing.T) {
	t.Parallel()
	k := store.Key{Namespace: "ns", Name: "a"}
	for _, tc := range []struct {
		reason        string
		locked        bool
		before, after string // dropped fields
		want          []string
	}{
		{"nothing is dropped", false, "", "", nil},
		{"it may have changed", false, `,"data":{"a":"b"}`, `,"data":{"a":"b"}`, []string{"MODIFIED ns/a@10<5"}},
		{"another client has added it", false, "", `,"data":{"a":"b"}`, []string{"MODIFIED ns/a@10<5"}},
		{"no other client can have changed it", true, `,"data":{"a":"b"}`, `,"data":{"a":"b"}`, nil},
	} {
		s := newStore(t, store.Options{Namespaced: true, Content: store.Content{Drop: []string{"data"}}})
		sink := s.Sink("")
		x := thing{ns: "ns", name: "a", uid: "u", version: 5, more: tc.before}
		list(t, sink, 9, x)
		c := s.Subscribe(store.SubscribeOptions{From: store.FromNow, HoldWrites: "ctl"})
		drain(c)
		sent := []byte(`{"metadata":{"labels":{"l":"x"}}}`)
		ctx := store.WriteContext{Owner: "ctl", Primary: k, Locked: tc.locked, Sent: sent}
		ctx.Base, _ = s.Get(k)
		w := s.BeginWrite(k, ctx)
		x.version, x.labels, x.more = 10, `"l":"x"`, tc.after
		if _, err := w.Done(source.JSON, x.json()); err != nil {
			t.Fatal(err)
		}
		apply(t, sink, source.Modified, x)
		if got := summary(drain(c)); !slices.Equal(got, tc.want) {
			t.Errorf("%s: events %v, want %v", tc.reason, got, tc.want)
		}
		c.Close()
	}
}
