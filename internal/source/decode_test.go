package source

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// decodeAll decodes a body as a stream and describes its events.
func decodeAll(t testing.TB, dec decoder, body io.Reader) []string {
	st := openStream(context.Background(), 0, func(context.Context, *stream) (io.ReadCloser, decoder, error) {
		return io.NopCloser(body), dec, nil
	})
	defer st.close()
	var got []string
	for {
		e, err := st.buffered()
		switch {
		case e != nil:
			got = append(got, describe(e))
		case err != nil:
			if p, ok := errors.AsType[*ProtocolError](err); ok {
				return append(got, "PROTOCOL "+p.What)
			}
			return append(got, "END "+err.Error())
		default:
			st.receive(<-st.batches())
		}
	}
}

func describe(e *event) string {
	h := &e.obj.Header
	switch e.kind {
	case evOpened:
		return "OPENED"
	case evBookmark:
		return fmt.Sprintf("BOOKMARK %s %v", h.ResourceVersion, e.initialEnd)
	case evError:
		return "ERROR " + e.err.Error()
	case evGarbage:
		return fmt.Sprintf("GARBAGE %q", e.obj.Raw)
	case evListEnd:
		return fmt.Sprintf("LIST %+v", *e.list)
	}
	return fmt.Sprintf("%s %s/%s %s %d %v", e.change, h.Namespace, h.Name, h.ResourceVersion, len(e.obj.Raw), e.err)
}

// chunked returns a reader of b in pieces of the given size.
func chunked(b []byte, size int) io.Reader {
	if size <= 1 {
		return iotest.OneByteReader(bytes.NewReader(b))
	}
	return &pieces{b, size}
}

type pieces struct {
	b    []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.b[:min(p.size, len(p.b))])
	p.b = p.b[n:]
	return n, nil
}

func fuzzFragments(f *testing.F, fresh func() decoder, seeds ...string) {
	for i, s := range seeds {
		f.Add([]byte(s), 1+i*7)
	}
	f.Fuzz(func(t *testing.T, body []byte, size int) {
		size = 1 + (size&0xffff)%5000
		whole := decodeAll(t, fresh(), bytes.NewReader(body))
		if diff := cmp.Diff(whole, decodeAll(t, fresh(), chunked(body, size))); diff != "" {
			t.Errorf("%q in pieces of %d bytes (-whole +pieces):\n%s", body, size, diff)
		}
	})
}

const small = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns","name":"a","resourceVersion":"3"}}`

// FuzzListJSON: fragmentation does not change how a list is decoded.
func FuzzListJSON(f *testing.F) {
	fuzzFragments(f, func() decoder { return &jsonList{} },
		`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"5","continue":"t"},"items":[`+small+`,`+
			small+`]}`,
		` { "items" : [ ] , "metadata" : {"resourceVersion":"5"} , "kind" : "List" } `,
		`{"items":[`+strings.Repeat(small+",", 50)+small+`],"metadata":{"resourceVersion":"5"},"kind":"XList"}`,
		`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"gone","reason":"Expired","code":410}`,
		`{"kind":"Table"}`, `<html>`, `{"items":[1]}`, `{"items":null,"metadata":null,"kind":"List"}`,
		`{"kind":"List","metadata":{"resourceVersion":"5"},"items":[`+small+`]`,
	)
}

// FuzzWatchJSON: fragmentation does not change how a stream of frames is decoded.
func FuzzWatchJSON(f *testing.F) {
	added := `{"type":"ADDED","object":` + small + `}`
	fuzzFragments(f, func() decoder { return &lines{} },
		added+"\n"+added+"\n",
		added+added,
		`{"object":`+small+`,"type":"DELETED"}`+"\n",
		`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n",
		`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410,"reason":"Expired","message":"old"}}`+"\n",
		"{\n \"type\": \"ADDED\",\n \"object\": "+small+"\n}\n"+added+"\n",
		`{"type":"ADDED","object":{]}`+"\n"+added+"\n",
		`{"type":"ADDED","object":{"metadata":{"labels":3}}}`+"\n", "\n\n \r\n"+added, `{"kind":"Status"}`,
		`{"type":"ADDED"}`, "<html>",
	)
}

// lines is jsonWatch without the bytes of malformed frames, which depend on what has arrived.
type lines struct{ jsonWatch }

func (d *lines) next(b []byte, eof bool, e *event) (int, bool, error) {
	n, got, err := d.jsonWatch.next(b, eof, e)
	if got && e.kind == evGarbage {
		return n, false, &ProtocolError{What: "garbage"}
	}
	if _, ok := errors.AsType[*ProtocolError](err); ok {
		err = &ProtocolError{What: "garbage"}
	}
	return n, got, err
}

func wrap(t testing.TB, apiVersion, kind string, raw []byte) []byte {
	t.Helper()
	u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: raw}
	b, err := u.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte(magic), b...)
}

func marshal(t testing.TB, m interface{ Marshal() ([]byte, error) }) []byte {
	t.Helper()
	b, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func protoFrame(t testing.TB, kind string, object []byte) []byte {
	t.Helper()
	b := marshal(t, &metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: object}})
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

func protoPods(n int) *corev1.PodList {
	l := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "99", Continue: "t"}}
	for i := range n {
		l.Items = append(l.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint("p", i), Namespace: "ns", ResourceVersion: fmt.Sprint(i + 1),
		}})
	}
	return l
}

func TestProtobuf(t *testing.T) {
	t.Parallel()
	p := protoPods(1).Items[0]
	raw := marshal(t, &p)
	end := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "9", Annotations: map[string]string{initialEventsEnd: "true"},
	}}
	expired := metav1.Status{Code: 410, Reason: metav1.StatusReasonExpired, Message: "old"}
	var frames []byte
	frames = append(frames, protoFrame(t, "ADDED", wrap(t, "v1", "Pod", raw))...)
	frames = append(frames, protoFrame(t, "BOOKMARK", wrap(t, "v1", "Pod", marshal(t, &end)))...)
	frames = append(frames, protoFrame(t, "ADDED", []byte("junk"))...)
	frames = append(frames, protoFrame(t, "ERROR", wrap(t, "v1", "Status", marshal(t, &expired)))...)
	cases := map[string]struct {
		dec  func() decoder
		body []byte
		want []string
	}{
		"watch": {func() decoder { return &protoWatch{} }, frames, []string{
			"OPENED", fmt.Sprintf("ADDED ns/p0 1 %d <nil>", len(raw)), "BOOKMARK 9 true",
			fmt.Sprintf("GARBAGE %q", protoFrame(t, "ADDED", []byte("junk"))[4:]), "ERROR server answered 410 Expired: old",
			"END EOF",
		}},
		"cut watch": {func() decoder { return &protoWatch{} }, frames[:len(frames)-3], []string{
			"OPENED", fmt.Sprintf("ADDED ns/p0 1 %d <nil>", len(raw)), "BOOKMARK 9 true",
			fmt.Sprintf("GARBAGE %q", protoFrame(t, "ADDED", []byte("junk"))[4:]), "END unexpected EOF",
		}},
		"list": {
			func() decoder { return &protoList{} }, wrap(t, "v1", "PodList", marshal(t, protoPods(1))),
			[]string{
				"OPENED", fmt.Sprintf("ADDED ns/p0 1 %d <nil>", len(raw)),
				"LIST {kind:Pod apiVersion:v1 version:99 next:t remaining:0}", "END EOF",
			},
		},
		"empty list": {
			func() decoder { return &protoList{} }, wrap(t, "v1", "PodList", marshal(t, protoPods(0))),
			[]string{"OPENED", "LIST {kind:Pod apiVersion:v1 version:99 next:t remaining:0}", "END EOF"},
		},
		"cut list": {
			func() decoder { return &protoList{} }, wrap(t, "v1", "PodList", marshal(t, protoPods(1)))[:40],
			[]string{"OPENED", "END unexpected EOF"},
		},
		"status": {
			func() decoder { return &protoList{} }, wrap(t, "v1", "Status", marshal(t, &expired)),
			[]string{"OPENED", "END server answered 410 Expired: old"},
		},
		"not magic": {func() decoder { return &protoList{} }, []byte("<html>"), []string{"OPENED", "PROTOCOL no list"}},
		"object": {
			func() decoder { return &protoList{} }, wrap(t, "v1", "Pod", raw),
			[]string{"OPENED", "PROTOCOL Pod (v1) instead of a list"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, size := range []int{1, 3, 1 << 20} {
				if diff := cmp.Diff(c.want, decodeAll(t, c.dec(), chunked(c.body, size))); diff != "" {
					t.Errorf("in pieces of %d bytes (-want +got):\n%s", size, diff)
				}
			}
		})
	}
}

func FuzzListProtobuf(f *testing.F) {
	fuzzFragments(f, func() decoder { return &protoList{} },
		string(wrap(f, "v1", "PodList", marshal(f, protoPods(3)))),
		string(wrap(f, "v1", "Status", marshal(f, &metav1.Status{Code: 410}))), magic, "x")
}

func FuzzWatchProtobuf(f *testing.F) {
	p := protoPods(1).Items[0]
	fuzzFragments(f, func() decoder { return &protoWatch{} },
		string(protoFrame(f, "ADDED", wrap(f, "v1", "Pod", marshal(f, &p)))), "\x00\x00\x00\x01x", "\xff\xff\xff\xff")
}

// TestBuffersShrink: the memory for a huge object is released after it.
func TestBuffersShrink(t *testing.T) {
	t.Parallel()
	big := strings.Replace(small, `"metadata"`, `"data":"`+strings.Repeat("x", 30<<20)+`","metadata"`, 1)
	body := `{"type":"ADDED","object":` + big + "}\n" + strings.Repeat(`{"type":"ADDED","object":`+small+"}\n", 3000)
	st := openStream(t.Context(), 0, func(context.Context, *stream) (io.ReadCloser, decoder, error) {
		return io.NopCloser(chunked([]byte(body), 64<<10)), &jsonWatch{}, nil
	})
	defer st.close()
	objects, held := 0, 0
	for {
		e, err := st.buffered()
		if e != nil {
			objects++
			held = len(st.current.data)
			continue
		}
		if err != nil {
			break
		}
		st.receive(<-st.batches())
	}
	if objects != 3002 || held > 2*largeBuffer {
		t.Errorf("%d events, want 3002 with the answer; the last buffer has %d bytes", objects, held)
	}
}

// slowly reads one part after the other, with a pause between them.
type slowly struct{ parts []string }

func (s *slowly) Read(b []byte) (int, error) {
	if len(s.parts) == 0 {
		return 0, io.EOF
	}
	n := copy(b, s.parts[0])
	if s.parts[0] = s.parts[0][n:]; s.parts[0] == "" {
		s.parts = s.parts[1:]
		time.Sleep(time.Minute) // on the fake clock
	}
	return n, nil
}

// TestIdleStreamsAreSmall: a watch with many events at its start holds little memory when it idles.
func TestIdleStreamsAreSmall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		added := `{"type":"ADDED","object":` + small + "}\n"
		bookmark := `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}` + "\n"
		body := &slowly{[]string{strings.Repeat(added, 20000), bookmark, bookmark, bookmark, bookmark, bookmark, bookmark}}
		st := openStream(t.Context(), 0, func(context.Context, *stream) (io.ReadCloser, decoder, error) {
			return io.NopCloser(body), &jsonWatch{}, nil
		})
		defer st.close()
		largest, last, slots := 0, 0, 0
		for {
			e, err := st.buffered()
			if e != nil {
				last, slots = len(st.current.data), len(st.current.events)
				largest = max(largest, last)
				continue
			}
			if err != nil {
				break
			}
			st.receive(<-st.batches())
		}
		if largest < largeBuffer || last > 4*smallBuffer || slots > smallEvents {
			t.Errorf("buffer grew to %d and is %d at the end, with %d events", largest, last, slots)
		}
	})
}
