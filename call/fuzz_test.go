package call

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Reading arbitrary bytes of a server ends with a value or an error.

func FuzzParsePage(f *testing.F) {
	list := corev1.ConfigMapList{
		ListMeta: metav1.ListMeta{ResourceVersion: "50", Continue: "t"},
		Items:    []corev1.ConfigMap{{Data: map[string]string{"k": "v"}}},
	}
	raw, err := list.Marshal()
	if err != nil {
		f.Fatal(err)
	}
	u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}, Raw: raw}
	body, err := u.Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append(bytes.Clone(protobufMagic), body...))
	f.Add(
		[]byte(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"continue":"t"},"items":[{"metadata":{"name":"a"}}]}`),
	)
	f.Add([]byte(`{"kind":"List","items":null}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		page, err := parsePage(&Answer{Raw: raw})
		if (page == nil) == (err == nil) {
			t.Fatalf("page %v, error %v", page, err)
		}
		if err != nil {
			return
		}
		for _, item := range page.Items {
			_ = page.decodeItem(item, new(corev1.ConfigMap))
		}
	})
}

func FuzzDecodeList(f *testing.F) {
	f.Add(
		[]byte(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"continue":"t"},"items":[{"metadata":{"name":"a"}}]}`),
	)
	f.Add([]byte(`{"items":[{}],"kind":"ConfigMapList"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		streamed := 0
		page, broken, err := decodeList(io.NopCloser(bytes.NewReader(raw)),
			func(*Page, []byte) (bool, error) { streamed++; return true, nil })
		if (page == nil) == (broken == nil && err == nil) {
			t.Fatalf("page %v, errors %v, %v", page, broken, err)
		}
		// The other reader accepts every list that streams completely, and finds as many items. (Repeated members and members
		// in another case are read differently. No server sends them.)
		whole, werr := parsePage(&Answer{Raw: raw})
		if page != nil && werr == nil && bytes.Count(bytes.ToLower(raw), []byte(`"items"`)) == 1 &&
			!bytes.Contains(raw, []byte(`\`)) && len(whole.Items) != streamed {
			t.Fatalf("%d items streamed, %d in the page", streamed, len(whole.Items))
		}
	})
}

func FuzzDecide(f *testing.F) {
	f.Add(409, []byte(`{"kind":"Status","reason":"Conflict","details":{"retryAfterSeconds":3}}`),
		[]byte(`{"metadata":{"name":"a"}}`), "application/json", "5")
	f.Add(200, []byte(`k8s`+"\x00"), []byte(`[]`), Protobuf, "")
	f.Fuzz(func(t *testing.T, code int, body, sent []byte, contentType, after string) {
		h := http.Header{"Content-Type": {contentType}, "Retry-After": {after}}
		r := &Request{Verb: VerbUpdate, Object: new(corev1.ConfigMap), Body: sent}
		for _, pr := range []progress{{}, {inDoubt: true}, {verifying: &verification{err: io.EOF}}} {
			o, _ := decide(r, Policy{}.resolved(), sent, pr, answer{code: code, header: h, body: body},
				func() float64 { return 1 })
			if (o.action == fail || o.action == retry) && o.err == nil {
				t.Fatalf("no error with %+v", o)
			}
			if o.after < 0 {
				t.Fatalf("waits %v", o.after)
			}
		}
	})
}
