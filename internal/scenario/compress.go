package scenario

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
)

// compressor is a proxy that compresses every response, even if the client does not accept that.
type compressor struct{ next http.RoundTripper }

func (c compressor) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := c.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	b := &compressedBody{ReadCloser: res.Body, read: make([]byte, 4<<10)}
	b.z = gzip.NewWriter(&b.out)
	res.Body, res.ContentLength = b, -1
	res.Header.Set("Content-Encoding", "gzip")
	res.Header.Del("Content-Length")
	return res, nil
}

// WrappedRoundTripper lets client-go reach the transport below.
func (c compressor) WrappedRoundTripper() http.RoundTripper { return c.next }

// compressedBody compresses the body that it reads, and flushes after each read.
type compressedBody struct {
	io.ReadCloser
	z    *gzip.Writer
	out  bytes.Buffer
	read []byte
	err  error
}

func (b *compressedBody) Read(p []byte) (int, error) {
	for b.out.Len() == 0 && b.err == nil {
		var n int
		n, b.err = b.ReadCloser.Read(b.read)
		_, _ = b.z.Write(b.read[:n]) // a write to memory cannot fail
		_ = b.z.Flush()
		if b.err == io.EOF {
			_ = b.z.Close()
		}
	}
	if b.out.Len() == 0 {
		return 0, b.err
	}
	return b.out.Read(p)
}
