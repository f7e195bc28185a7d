package schedule

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The frames of a watch that was held arrive one after the other, whatever the sizes of the reads. Without a gate, all
// arrive at once.
func TestHeldFramesArriveApart(t *testing.T) {
	texts := []string{"first", "a longer second one", "third"}
	encodings := map[string]func(text string) []byte{
		"application/json": func(text string) []byte { return []byte(text + "\n") },
		"application/vnd.kubernetes.protobuf;stream=watch": func(text string) []byte {
			return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
		},
	}
	for contentType, encode := range encodings {
		for _, size := range []int{1, 3, 7, 4096} {
			for _, late := range []time.Duration{0, 5 * time.Second} {
				synctest.Test(t, func(t *testing.T) {
					var stream []byte
					var ends []int
					for _, text := range texts {
						stream = append(stream, encode(text)...)
						ends = append(ends, len(stream))
					}
					g, begin := newGates(), time.Now()
					if late > 0 {
						g.close("pods", late, false)
					}
					resp := &http.Response{
						Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(bytes.NewReader(stream)),
					}
					b := newLateBody(resp, t.Context().Done(), g, "pods", begin, &Process{})
					var got []byte
					at := map[int]time.Duration{} // by the number of bytes
					for {
						p := make([]byte, size)
						n, err := b.Read(p)
						got = append(got, p[:n]...)
						at[len(got)] = time.Since(begin)
						if err == io.EOF {
							break
						} else if err != nil {
							t.Fatal(err)
						}
					}
					if !bytes.Equal(got, stream) {
						t.Fatalf("%s by %d: the stream is %q", contentType, size, got)
					}
					want, arrived := []time.Duration{late, late + apart, late + 2*apart}, []time.Duration(nil)
					if late == 0 {
						want = []time.Duration{0, 0, 0}
					}
					for _, end := range ends[:len(ends)-1] {
						arrived = append(arrived, at[end])
					}
					if d := cmp.Diff(want[:len(arrived)], arrived); d != "" {
						t.Errorf("%s by %d, late by %s: the frames arrive at (-want +got):\n%s", contentType, size, late, d)
					}
				})
			}
		}
	}
}

// A gate that closes between two frames that were read together holds the second one.
func TestGateClosesBetweenFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, begin := newGates(), time.Now()
		resp := &http.Response{Body: io.NopCloser(bytes.NewReader([]byte("a\nb\n")))}
		b := newLateBody(resp, t.Context().Done(), g, "pods", begin, &Process{})
		p := make([]byte, 10)
		if n, err := b.Read(p); err != nil || string(p[:n]) != "a\n" {
			t.Fatalf("got %q, error %v", p[:n], err)
		}
		g.close("pods", time.Second, false)
		if n, err := b.Read(p); err != nil || string(p[:n]) != "b\n" || time.Since(begin) != time.Second {
			t.Errorf("got %q after %s, error %v", p[:n], time.Since(begin), err)
		}
		g.close("pods", time.Second, true)
		if n, err := b.Read(p); n != 0 || err != io.EOF {
			t.Errorf("an expired watch has %d bytes, error %v", n, err)
		}
	})
}
