package source

import (
	"compress/flate"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
)

// gunzip decompresses a response that was compressed without a request for it, as some proxies do. The transport
// decompresses requested compression.
type gunzip struct {
	io.ReadCloser // the compressed body
	z             *gzip.Reader
	err           error
}

// decompressed returns the uncompressed body of a response.
func decompressed(res *http.Response) io.ReadCloser {
	if res.Uncompressed || res.Header.Get("Content-Encoding") != "gzip" {
		return res.Body
	}
	return &gunzip{ReadCloser: res.Body}
}

// Read creates the decompressor on first use, since NewReader blocks until bytes arrive and a watch may be silent for
// long.
func (g *gunzip) Read(p []byte) (int, error) {
	if g.z == nil && g.err == nil {
		z, err := gzip.NewReader(g.ReadCloser)
		g.z, g.err = z, notGzip(err)
	}
	if g.err != nil {
		return 0, g.err
	}
	n, err := g.z.Read(p)
	return n, notGzip(err)
}

// notGzip turns a decompression error into a ProtocolError and leaves connection errors as they are.
func notGzip(err error) error {
	_, corrupt := errors.AsType[flate.CorruptInputError](err)
	if corrupt || errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) {
		return &ProtocolError{What: "body does not match its content encoding", Err: err}
	}
	return err
}
