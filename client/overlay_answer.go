package client

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"mime"
	"net/http"
)

// How Overlay reads an answer that the caller is to read, too.

// maxAnswer bounds what is read of one answer, as it comes and as it is decompressed: it is kept in memory.
const maxAnswer = 64 << 20

// errUnread says that an answer was not read to its end, or is compressed in a way that is not known. The caller gets
// it all the same.
var errUnread = errors.New("the answer cannot be read here")

// readAnswer reads the body of an answer and puts in its place one that says the same: bytes, end and error. What is
// returned is decompressed.
func readAnswer(res *http.Response) ([]byte, error) {
	var raw bytes.Buffer
	if n := res.ContentLength; n > 0 && n <= maxAnswer {
		raw.Grow(int(n) + bytes.MinRead)
	}
	n, err := raw.ReadFrom(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		res.Body = replayed(raw.Bytes(), failing{err}, res.Body)
		return nil, err
	case n > maxAnswer:
		res.Body = replayed(raw.Bytes(), res.Body, res.Body)
		return nil, errUnread
	}
	res.Body = replayed(raw.Bytes(), http.NoBody, res.Body)
	if res.Uncompressed || res.Header.Get("Content-Encoding") == "" {
		return raw.Bytes(), nil
	}
	if res.Header.Get("Content-Encoding") != "gzip" {
		return nil, errUnread
	}
	z, err := gzip.NewReader(bytes.NewReader(raw.Bytes()))
	if err != nil {
		return nil, errUnread
	}
	plain, err := io.ReadAll(io.LimitReader(z, maxAnswer+1))
	if err != nil || len(plain) > maxAnswer {
		return nil, errUnread
	}
	return plain, nil
}

// mediaOf says whether an answer is in a form that can be read here, and whether it is one in no form of the API, which
// may have no end.
func mediaOf(res *http.Response) (known, stream bool) {
	media, params, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch {
	case err != nil || params["stream"] != "":
		return false, true
	case media == "application/json" || media == "application/vnd.kubernetes.protobuf":
		return true, false
	}
	return false, media != "application/yaml" && media != "application/cbor"
}

// mediaType is a Content-Type without its parameters.
func mediaType(h http.Header) string {
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return media
}

// replay is a body of which something was read.
type replay struct {
	io.Reader
	io.Closer
}

func replayed(read []byte, rest io.Reader, body io.Closer) io.ReadCloser {
	return replay{Reader: io.MultiReader(bytes.NewReader(read), rest), Closer: body}
}

// failing is a reader that fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
