package source

import (
	"compress/flate"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
)

// gunzip decompresses an answer that nobody asked to be compressed, as some proxies send. The transport has done so
// already with what was asked for.
type gunzip struct {
	io.ReadCloser // what is compressed
	z             *gzip.Reader
	err           error
}

// decompressed is the body of an answer as the server meant it.
func decompressed(res *http.Response) io.ReadCloser {
	if res.Uncompressed || res.Header.Get("Content-Encoding") != "gzip" {
		return res.Body
	}
	return &gunzip{ReadCloser: res.Body}
}

// Read begins to decompress when there is something: a watch may be silent for long.
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

// notGzip tells a body that is not compressed as it says from a connection that breaks.
func notGzip(err error) error {
	_, corrupt := errors.AsType[flate.CorruptInputError](err)
	if corrupt || errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) {
		return &ProtocolError{What: "body is not compressed as it says", Err: err}
	}
	return err
}
