package source

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const secret = "hunter2"

// reduced runs a body through a decoder of metadata. It describes the reduced events and errors.
func reduced(t *testing.T, dec decoder, body []byte, size int) (got []string) {
	t.Helper()
	st := openStream(context.Background(), 0, func(context.Context, *stream) (io.ReadCloser, decoder, error) {
		return io.NopCloser(chunked(body, size)), metadataDecoder{discreetDecoder{dec}}, nil
	})
	defer st.close()
	for {
		e, err := st.buffered()
		switch {
		case e != nil:
			h := &e.obj.Header
			what := describe(e)
			if e.kind == evObject {
				pruned := e.obj.AppendPruned(nil)
				what = fmt.Sprintf("%s %s/%s kind %q, %q", e.change, h.Namespace, h.Name, h.Kind, pruned)
				if !e.obj.Header.ManagedFields.Empty() && bytes.Contains(pruned, []byte("someone")) {
					t.Errorf("managedFields are left in %q", pruned)
				}
			}
			if e.err != nil && e.kind != evGarbage { // the error says where in the body it is
				what += " " + e.err.Error()
			}
			if strings.Contains(what, secret) || bytes.Contains(e.obj.Raw, []byte(secret)) {
				t.Errorf("more than metadata is delivered: %s, %q", what, e.obj.Raw)
			}
			got = append(got, what)
		case err != nil:
			if strings.Contains(err.Error(), secret) {
				t.Errorf("an error shows more than metadata: %v", err)
			}
			return append(got, "END "+err.Error())
		default:
			st.receive(<-st.batches())
		}
	}
}

// TestMetadataOnly: objects arrive in one form, whether the server reduces them or not.
func TestMetadataOnly(t *testing.T) {
	t.Parallel()
	const meta = `{"namespace":"ns","name":"a","resourceVersion":"3"}`
	managed := strings.Replace(meta, `"resource`, `"managedFields":[{"manager":"someone"}],"resource`, 1)
	left := fmt.Sprintf("%q", `{"metadata":`+meta+`}`)
	partial := func(meta string) string {
		return `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":` + meta + `}`
	}
	whole := func(meta string) string {
		return `{"data":{"password":"` + secret + `"},"kind":"Secret" , "metadata" : ` + meta +
			` , "apiVersion":"v1","type":"` + secret + `"}`
	}
	list := func(kind, apiVersion string, items ...string) string {
		return fmt.Sprintf(`{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"9"},"items":[%s]}`, kind, apiVersion,
			strings.Join(items, ","))
	}
	frame := func(typ, object string) string { return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", typ, object) }
	end := `{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}`

	om := metav1.ObjectMeta{
		Namespace: "ns", Name: "a", ResourceVersion: "3",
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "someone"}},
	}
	bare := metav1.PartialObjectMetadata{ObjectMeta: *om.DeepCopy()}
	bare.ManagedFields = nil
	protoLeft := fmt.Sprintf("%q", marshal(t, &bare))
	full := corev1.Secret{ObjectMeta: om, Data: map[string][]byte{"password": []byte(secret)}}
	partials := metav1.PartialObjectMetadataList{
		ListMeta: metav1.ListMeta{ResourceVersion: "9"}, Items: []metav1.PartialObjectMetadata{{ObjectMeta: om}},
	}
	fulls := corev1.SecretList{ListMeta: partials.ListMeta, Items: []corev1.Secret{full}}
	ends := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "9", Annotations: map[string]string{initialEventsEnd: "true"},
	}}
	protoWatches := func(apiVersion, kind string, o interface{ Marshal() ([]byte, error) }) string {
		frames := protoFrame(t, "ADDED", wrap(t, apiVersion, kind, marshal(t, o)))
		frames = append(frames, protoFrame(t, "BOOKMARK", wrap(t, apiVersion, kind, marshal(t, &ends)))...)
		return string(append(frames, protoFrame(t, "ADDED", []byte("junk of "+secret))...))
	}
	jsonWatches := func(object func(string) string) string {
		return frame("ADDED", object(managed)) + frame("BOOKMARK", object(end)) + `{"type":"ADDED","object":{"data":"` +
			secret + `",]}` + "\n"
	}
	listed := func(kind, left string) []string {
		return []string{
			"OPENED", `ADDED ns/a kind "` + kind + `", ` + left,
			"LIST {kind:%s apiVersion:%s version:9 next: remaining:0}", "END EOF",
		}
	}
	watched := func(kind, left string) []string {
		return []string{"OPENED", `ADDED ns/a kind "` + kind + `", ` + left, "BOOKMARK 9 true", `GARBAGE ""`, "END EOF"}
	}
	of := func(want []string, kind, apiVersion string) []string {
		want[2] = fmt.Sprintf(want[2], kind, apiVersion)
		return want
	}
	cases := map[string]struct {
		reason string
		dec    func() decoder
		body   string
		want   []string
	}{
		"list": {
			"a server that reduces objects", func() decoder { return &jsonList{} },
			list("PartialObjectMetadataList", "meta.k8s.io/v1", partial(managed)), of(listed("", left), "", ""),
		},
		"list of whole objects": {
			"a server that ignores the request for metadata", func() decoder { return &jsonList{} },
			list("SecretList", "v1", whole(managed)), of(listed("Secret", left), "Secret", "v1"),
		},
		"watch": {"", func() decoder { return &jsonWatch{} }, jsonWatches(partial), watched("", left)},
		"watch of whole objects": {
			"", func() decoder { return &jsonWatch{} }, jsonWatches(whole),
			watched("Secret", left),
		},
		"protobuf list": {
			"", func() decoder { return &protoList{} },
			string(wrap(t, "meta.k8s.io/v1", "PartialObjectMetadataList", marshal(t, &partials))),
			of(listed("", protoLeft), "", ""),
		},
		"protobuf list of whole objects": {
			"a server that ignores the parameters of a media type", func() decoder { return &protoList{} },
			string(wrap(t, "v1", "SecretList", marshal(t, &fulls))), of(listed("", protoLeft), "Secret", "v1"),
		},
		"protobuf watch": {
			"", func() decoder { return &protoWatch{} },
			protoWatches("meta.k8s.io/v1", "PartialObjectMetadata", &partials.Items[0]), watched("", protoLeft),
		},
		"protobuf watch of whole objects": {
			"", func() decoder { return &protoWatch{} },
			protoWatches("v1", "Secret", &full), watched("Secret", protoLeft),
		},
		"item without a name": {
			"quarantined objects are reduced too", func() decoder { return &jsonList{} },
			list("SecretList", "v1", whole(`{"uid":"u"}`), `"`+secret+`"`),
			[]string{
				"OPENED", `ADDED / kind "Secret", "{\"metadata\":{\"uid\":\"u\"}}" ` + errNoName.Error(),
				`ADDED / kind "", "" ` + errNoObject.Error(),
				"LIST {kind:Secret apiVersion:v1 version:9 next: remaining:0}", "END EOF",
			},
		},
		"neither list nor page": {
			"an error quotes no object", func() decoder { return &jsonList{} }, `"` + secret + `"`,
			[]string{"OPENED", "END cannot understand answer: no list"},
		},
		"page of a proxy": {
			"the error quotes the page, which helps to find the proxy", func() decoder { return &jsonList{} }, `<htm`,
			[]string{"OPENED", `END cannot understand answer: no list (begins with "<htm")`},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, size := range []int{7, 1 << 20} {
				got := reduced(t, c.dec(), []byte(c.body), size)
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("%s: in pieces of %d bytes (-want +got):\n%s", c.reason, size, diff)
				}
			}
		})
	}
}

// TestKeepMetadata: the spans of a reduced object fit its bytes, and a second reduction changes nothing.
func TestKeepMetadata(t *testing.T) {
	t.Parallel()
	for name, raw := range map[string]string{
		"whole": `{"kind":"Secret","apiVersion":"v1","data":{"a":"` + secret +
			`"},"metadata":{"name":"a","managedFields":[{"manager":"someone"}]},"type":"x"}`,
		"metadata": `{"metadata":{"name":"a","managedFields":[{"manager":"someone"}]}}`,
		"odd spaces": "  {\n\"metadata\" :\t{\"managedFields\":[{\"manager\":\"someone\"}], \"name\":\"a\"} , \"data\":\"" +
			secret + "\"}",
		"escaped name": `{"\u006detadata":{"name":"a"},"data":"` + secret + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			whole := []byte(raw)
			o := Object{Raw: whole}
			if err := Scan(JSON, o.Raw, &o.Header); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				o.KeepMetadata()
				pruned := o.AppendPruned(nil)
				var h Header
				if err := Scan(JSON, pruned, &h); err != nil || string(h.Name) != "a" || !h.ManagedFields.Empty() {
					t.Errorf("the reduced object is %q: %v", pruned, err)
				}
				if bytes.Contains(o.Raw, []byte(secret)) || !bytes.HasPrefix(o.Raw, []byte(metadataHead)) {
					t.Errorf("the reduced object is %q", o.Raw)
				}
			}
			if string(whole) != raw {
				t.Error("the bytes of the caller were changed")
			}
		})
	}
	none := Object{Raw: []byte(`{"data":"` + secret + `"}`)}
	if err := Scan(JSON, none.Raw, &none.Header); err != nil {
		t.Fatal(err)
	}
	if none.KeepMetadata(); none.Raw != nil {
		t.Errorf("an object without metadata is reduced to %q", none.Raw)
	}
}

// FuzzKeepMetadata: an object that can be scanned has the same header after the reduction.
func FuzzKeepMetadata(f *testing.F) {
	f.Add(
		[]byte(
			`{"kind":"Secret","data":{"a":"b"},"metadata":{"name":"a","labels":{"x":"y"},"managedFields":[{}],"uid":"u"}}`,
		), false,
	)
	f.Add([]byte(`{ "metadata" : {"name":"a"} }`), false)
	f.Add(marshal(f, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Data:       map[string][]byte{"a": []byte(secret)},
	}), true)
	f.Fuzz(func(t *testing.T, raw []byte, proto bool) {
		o := Object{Raw: raw}
		if proto {
			o.Encoding = Protobuf
		}
		if Scan(o.Encoding, raw, &o.Header) != nil {
			return
		}
		before := bytes.Clone(raw)
		name := string(o.Header.Name)
		o.KeepMetadata()
		if !bytes.Equal(raw, before) {
			t.Fatal("the bytes of the caller were changed")
		}
		var h Header
		left := o.AppendPruned(nil)
		if len(o.Raw) == 0 {
			return
		}
		if err := Scan(o.Encoding, left, &h); err != nil {
			t.Fatalf("%q is the reduction of %q: %v", left, raw, err)
		}
		if twice := bytes.Count(raw, []byte("etadata")) > 1 || proto; !twice && string(h.Name) != name {
			t.Errorf("%q is the reduction of %q: name %q instead of %q", left, raw, h.Name, name)
		}
	})
}
